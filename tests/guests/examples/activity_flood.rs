//! Opens activities until the host refuses one, on `/go`, and answers with their
//! number and the refusal.
use guests::*;
use std::cell::RefCell;
use std::rc::Rc;

thread_local!(static LINK: RefCell<Option<Rc<Link>>> = const { RefCell::new(None) });

struct It;

impl Guest for It {
    const NAME: &'static str = "activity-flood";

    async fn run(link: Link) -> Result<(), Error> {
        LINK.set(Some(Rc::new(link)));
        std::future::pending().await
    }

    async fn invoke(_: Prep, _: String, _: Channel) -> Result<Answer, Error> {
        let link = LINK.with_borrow(Clone::clone).ok_or(Error::Cancelled)?;
        let mut open = Vec::new();
        let refusal = loop {
            match link.begin_activity("one of many") {
                Ok(activity) => open.push(activity),
                Err(error) => break error,
            }
        };
        Ok(Answer::Completed(Some(format!(
            "{} {refusal:?}",
            open.len()
        ))))
    }
}

guests::export!(It);
