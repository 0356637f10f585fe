//! Traps in `compact`.
use guests::*;

struct It;

impl Guest for It {
    const NAME: &'static str = "trap-compact";

    async fn compact(_: String, _: Channel) -> Result<Compaction, Error> {
        panic!("trap in compact, as it should")
    }
}

guests::export!(It);
