//! Imports `process`, which nobody granted.
use guests::*;
use harness_guest::bindings::harness::provider::process::Process;

struct It;

impl Guest for It {
    const NAME: &'static str = "ungranted-import";

    async fn detect(_: Discovery) -> Result<Readiness, Error> {
        match Process::spawn("agent".to_owned(), None, None).await {
            Ok(_) => Err(Error::Native("a process was started".to_owned())),
            Err(error) => Err(Error::Unavailable(format!("{error:?}"))),
        }
    }
}

guests::export!(It);
