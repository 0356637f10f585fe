//! The component's exports: generated code on one side, [`dispatch`] on the other.
//!
//! [`dispatch`]: crate::dispatch

use crate::bindings::exports::harness::provider::provider as wit;
use crate::provider::{Invocation, Prepared, Provider};
use crate::sys::host;
use crate::types::{
    CommandState, Compaction, Error, Execution, HarnessInfo, Input, Operation, Outcome, Readiness,
};
use crate::{Channel, Discovery, Link, Preparation, dispatch, telemetry};
use std::any::Any;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;

/// Makes provider `P` the exports of the component.
pub struct Exports<P>(PhantomData<P>);

/// The host's handle of a prepared operation.
pub struct PreparedHandle<P: Provider>(dispatch::PreparedOf<P>);

/// The host's handle of a started turn.
pub struct SessionHandle<P: Provider>(dispatch::StartedTurn<P>);

/// The one provider of this instance, made before the first call that needs it.
fn instance<P: Provider>() -> Rc<P> {
    thread_local!(static INSTANCE: RefCell<Option<Rc<dyn Any>>> = const { RefCell::new(None) });
    telemetry::install();
    let existing = INSTANCE.with_borrow(Clone::clone);
    if let Some(provider) = existing.and_then(|any| any.downcast().ok()) {
        return provider;
    }
    let provider = Rc::new(P::default());
    INSTANCE.set(Some(provider.clone()));
    provider
}

impl<P: Provider> wit::GuestPrepared for PreparedHandle<P> {
    fn execution(&self) -> Execution {
        match self.0 {
            Prepared::Control(_) => Execution::Control,
            Prepared::Exclusive(_) => Execution::Exclusive,
        }
    }
}

impl<P: Provider> wit::GuestSession for SessionHandle<P> {}

impl<P: Provider> wit::Guest for Exports<P> {
    type Prepared = PreparedHandle<P>;
    type Session = SessionHandle<P>;

    fn describe() -> HarnessInfo {
        telemetry::install();
        P::describe()
    }

    async fn run(link: host::Link) -> Result<(), Error> {
        dispatch::run(&*instance::<P>(), Link::new(link)).await
    }

    async fn detect(request: host::Discovery) -> Result<Readiness, Error> {
        dispatch::detect(&*instance::<P>(), Discovery::new(request)).await
    }

    async fn get_command_state(request: host::Discovery) -> Result<Option<CommandState>, Error> {
        dispatch::get_command_state(&*instance::<P>(), Discovery::new(request)).await
    }

    async fn prepare_operation(
        request: host::Preparation,
        operation: Operation,
    ) -> Result<wit::Prepared, Error> {
        let request = Preparation::new(request);
        let prepared = dispatch::prepare(&*instance::<P>(), request, operation).await?;
        Ok(wit::Prepared::new(PreparedHandle::<P>(prepared)))
    }

    fn discard(prepared: wit::Prepared) {
        instance::<P>().discard(prepared.into_inner::<PreparedHandle<P>>().0);
    }

    async fn invoke(
        prepared: wit::Prepared,
        command_id: String,
        channel: host::Channel,
    ) -> Result<wit::Invocation, Error> {
        let prepared = prepared.into_inner::<PreparedHandle<P>>().0;
        let channel = Channel::new(channel, command_id);
        Ok(
            match dispatch::invoke(&*instance::<P>(), prepared, channel).await? {
                Invocation::Completed(outcome) => wit::Invocation::Completed(outcome),
                Invocation::Started { turn, params } => {
                    wit::Invocation::Started(wit::StartedTurn {
                        session: session::<P>(turn),
                        params,
                    })
                }
            },
        )
    }

    async fn start_prompt(input: Input, channel: host::Channel) -> Result<wit::Session, Error> {
        let channel = Channel::new(channel, input.command_id.clone());
        dispatch::start_prompt(&*instance::<P>(), input, channel)
            .await
            .map(session::<P>)
    }

    async fn adopt_turn(
        id: String,
        command_id: String,
        channel: host::Channel,
    ) -> Result<wit::Session, Error> {
        let channel = Channel::new(channel, command_id);
        dispatch::adopt_turn(&*instance::<P>(), id, channel)
            .await
            .map(session::<P>)
    }

    async fn done(session: wit::Session) -> Result<Outcome, Error> {
        let turn = session.into_inner::<SessionHandle<P>>().0;
        dispatch::done(&*instance::<P>(), turn).await
    }

    async fn compact(command_id: String, channel: host::Channel) -> Result<Compaction, Error> {
        dispatch::compact(&*instance::<P>(), Channel::new(channel, command_id)).await
    }
}

fn session<P: Provider>(turn: dispatch::StartedTurn<P>) -> wit::Session {
    wit::Session::new(SessionHandle::<P>(turn))
}
