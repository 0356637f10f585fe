//! Allocates and touches memory without end: in a control (`/go`) and in every
//! turn.
use guests::*;

struct It;

fn bomb() -> ! {
    let mut hoard = Vec::new();
    loop {
        hoard.push(vec![1u8; 4 << 20]);
        std::hint::black_box(&hoard);
    }
}

impl Guest for It {
    const NAME: &'static str = "memory-bomb";

    async fn invoke(_: Prep, _: String, _: Channel) -> Result<Answer, Error> {
        bomb()
    }

    async fn done(_: Sess) -> Result<Outcome, Error> {
        bomb()
    }
}

guests::export!(It);
