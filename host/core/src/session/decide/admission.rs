//! The one predicate of admission (S51): whether a run may begin in a loop. Prompts, native turns,
//! exclusives, idle controls and compactions all ask it; only the slot is a question of its own.

use super::Out;
use crate::ids::LoopId;
use crate::refusal::Refused;

impl Out<'_, '_> {
    /// Whether a run may begin in that loop, whatever the pool of slots says.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn can_admit(&self, loop_id: LoopId) -> Result<(), Refused> {
        if let Some(refused) = self.closed() {
            return Err(refused);
        }
        if let Some(fault) = &self.live.workspace.fault {
            return Err(Refused::CheckpointFaulted {
                reason: fault.code.clone(),
            });
        }
        self.can_compact(loop_id)
    }

    /// As [`Self::can_admit`]; a failed checkpoint does not keep a conversation from being
    /// compacted.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn can_compact(&self, loop_id: LoopId) -> Result<(), Refused> {
        if let Some(refused) = self.closed() {
            return Err(refused);
        }
        if self.live.is_marked(loop_id) {
            return Err(Refused::SessionStopping);
        }
        if self.live.of(loop_id).owner.is_some() {
            return Err(Refused::SessionBusy(
                "a run is live; wait for its end or stop it",
            ));
        }
        if self.works_on_workspace() {
            return Err(Refused::SessionBusy(
                "a checkpoint or rewind of the workspace is under way; try again when it has ended",
            ));
        }
        if !self.is_let_in() {
            return Err(Refused::SessionBusy(
                "another session's checkpoint or rewind has the workspace; try again when it has ended",
            ));
        }
        Ok(())
    }
}
