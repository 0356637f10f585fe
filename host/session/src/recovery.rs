//! Reading an operation's recorded outcome back, for a client that lost the response (R42, G5).

use harness_core::codec::decode_event;
use harness_core::event::EventBody;
use harness_core::ids::CommandId;
use harness_core::view::OperationResult;

/// The outcome that this frame holds for that command.
pub(crate) fn result_of(data: &str, command: CommandId) -> Option<OperationResult> {
    // Cheap test first: most events are another's.
    if !data.contains("\"NativeOperationResolved\"") {
        return None;
    }
    let mut value: serde_json::Map<String, serde_json::Value> = serde_json::from_str(data).ok()?;
    value.remove("seq");
    let event = decode_event(&serde_json::to_vec(&value).ok()?).ok()?;
    if event.cause.command_id != Some(command) {
        return None;
    }
    let EventBody::NativeOperationResolved {
        outcome,
        reason,
        message,
        run_id,
        effective,
        ..
    } = event.body
    else {
        return None;
    };
    Some(OperationResult {
        status: outcome,
        message,
        code: reason,
        command_id: command,
        run_id,
        params_effective: effective,
    })
}
