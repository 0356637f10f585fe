//! A host that only runs programs: supervisor and reapers for the tests, and something to kill.
//!
//! `native-host NAME COMMAND…` starts COMMAND in the directory `NAME`, copies its output to its own
//! and stays until its standard input ends, then drops the process and waits until all is reaped.

use futures::StreamExt;
use harness_engine::native::process::{
    ProcessLimits, Processes, Supervisor, hide_from_programs, supervisor_main,
};
use harness_engine::{ProcessCwd, ProcessGrant, Secret};
use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::io::AsyncReadExt;

fn main() -> ExitCode {
    if let Some(code) = supervisor_main() {
        return code;
    }
    let runtime = tokio::runtime::Runtime::new();
    match runtime
        .map_err(|error| error.to_string())
        .and_then(|runtime| runtime.block_on(host()))
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn host() -> Result<(), String> {
    hide_from_programs().map_err(|error| error.to_string())?;
    let mut args = std::env::args().skip(1);
    let directory = args.next().ok_or("usage: native-host DIRECTORY COMMAND…")?;
    let grant = ProcessGrant {
        background: false,
        command: args.collect(),
        env: BTreeMap::from([(
            "PATH".to_owned(),
            Secret::new(std::env::var("PATH").unwrap_or_default()),
        )]),
        cwd: ProcessCwd::Path(directory.into()),
    };
    let grants = Arc::new(BTreeMap::from([("program".to_owned(), grant)]));
    let processes = Processes::new(Supervisor::this_binary(), grants, ProcessLimits::default());
    let process = processes
        .spawn("program", None, None)
        .await
        .map_err(|error| error.to_string())?;
    let (mut output, _) = process.stdout();
    let copy = async move {
        while let Some(chunk) = output.next().await {
            let mut out = std::io::stdout().lock();
            out.write_all(&chunk)
                .and_then(|()| out.flush())
                .map_err(|error| error.to_string())?;
        }
        std::future::pending::<Result<(), String>>().await
    };
    let mut end = Vec::new();
    let mut input = tokio::io::stdin();
    tokio::select! {
        failed = copy => failed?,
        read = input.read_to_end(&mut end) => drop(read),
    }
    let reaped = process.reaped();
    drop(process);
    reaped.await;
    Ok(())
}
