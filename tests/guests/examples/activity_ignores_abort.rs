//! After `/go` it has an activity open and never closes it.
use guests::*;
use std::cell::RefCell;
use std::rc::Rc;

thread_local!(static LINK: RefCell<Option<Rc<Link>>> = const { RefCell::new(None) });

struct It;

impl Guest for It {
    const NAME: &'static str = "activity-ignores-abort";

    async fn run(link: Link) -> Result<(), Error> {
        LINK.set(Some(Rc::new(link)));
        std::future::pending().await
    }

    async fn invoke(prep: Prep, _: String, _: Channel) -> Result<Answer, Error> {
        let link = LINK.with_borrow(Clone::clone).ok_or(Error::Cancelled)?;
        std::mem::forget(link.begin_activity("never ends")?);
        Ok(Answer::Completed(Some(prep.text)))
    }
}

guests::export!(It);
