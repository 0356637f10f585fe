//! What an actor does without being told: late notifications, controls that waited long enough,
//! instances that nobody uses, parking.

use super::{Actor, ReserveCall};
use harness_core::event::{Event, EventBody};
use harness_core::ids::{EventId, LoopId, TurnId};
use harness_core::refusal::Refused;
use harness_core::session::Fault;
use std::time::Duration;
use tokio::time::Instant;

/// Shortest time between two notifications of changed command state (G7).
const NOTIFY_EVERY: Duration = Duration::from_millis(250);

/// How soon a session that was stopped, or taken over, leaves memory when nobody holds it.
const STOPPED_PARK: Duration = Duration::from_millis(100);

impl Actor {
    pub(super) fn next_wake(&self) -> Option<Instant> {
        let instance_idle = self.instance_idle();
        let waiting = self.waiting.iter().chain(&self.outside);
        let waiting = waiting.map(|(_, deadline)| *deadline);
        let seats = self.seats.values().flat_map(|seat| {
            let open = seat.instance.is_some();
            let idle = seat.quiet_since.filter(|_| open);
            [seat.notify_due, idle.map(|since| since + instance_idle)]
        });
        let park = self.quiet_since.filter(|_| !self.has_instance());
        waiting
            .chain(seats.flatten())
            .chain(park.map(|since| since + self.park_after()))
            .min()
    }

    /// What is due. True: the session is parked and the actor ends.
    pub(super) async fn timers(&mut self) -> bool {
        let now = Instant::now();
        let (late, waiting) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|(_, at)| *at <= now);
        self.waiting = waiting;
        let late: Vec<(Box<ReserveCall>, Instant)> = late;
        for (call, _) in late {
            self.reserve(call, true).await;
        }
        let (late, outside) = std::mem::take(&mut self.outside)
            .into_iter()
            .partition(|(_, at)| *at <= now);
        self.outside = outside;
        let late: Vec<(Box<ReserveCall>, Instant)> = late;
        for (call, _) in late {
            let why = "another session's checkpoint or rewind has the workspace; try again when it has ended";
            self.refuse_call(call, Refused::SessionBusy(why));
        }
        for loop_id in self.seats.keys().copied().collect::<Vec<_>>() {
            if self.seat(loop_id).notify_due.is_some_and(|due| due <= now) {
                self.notify_now(loop_id, now);
            }
            self.drop_instance_if_idle(loop_id, now);
        }
        let Some(since) = self.quiet_since.filter(|_| !self.has_instance()) else {
            return false;
        };
        now >= since + self.park_after() && self.park().await
    }

    fn park_after(&self) -> Duration {
        let after = self.deps.config.park_after;
        if self.session.state.stopped || self.is_taken_over() {
            after.min(STOPPED_PARK)
        } else {
            after
        }
    }

    /// Another holder has the session: what is left of it here is in the way.
    pub(super) fn is_taken_over(&self) -> bool {
        let fault = self.session.live.faulted.as_ref();
        fault.is_some_and(Fault::is_lease_lost)
    }

    fn instance_idle(&self) -> Duration {
        if self.is_taken_over() {
            Duration::ZERO
        } else {
            self.deps.config.instance_idle
        }
    }

    fn has_instance(&self) -> bool {
        self.seats.values().any(|seat| seat.instance.is_some())
    }

    fn drop_instance_if_idle(&mut self, loop_id: LoopId, now: Instant) {
        let idle = self.instance_idle();
        let seat = self.seat(loop_id);
        let Some(since) = seat.quiet_since.filter(|_| seat.instance.is_some()) else {
            return;
        };
        let opening = seat.instance.is_opening();
        if now < since + idle {
            return;
        }
        // Discovery and preparation run outside the actor and count as well (N5). One that is being
        // opened is not idle, though who wanted it may have gone.
        let used = self.uses.last().max(since);
        let in_use = self.uses.in_flight() > 0 || opening;
        if in_use || now < used + idle {
            self.seat(loop_id).quiet_since = Some(if in_use { now } else { used });
            return;
        }
        self.drop_idle_instance(loop_id);
        // Parking counts from here.
        self.quiet_since = self.quiet_since.map(|_| now);
    }

    /// Notes since when nothing keeps the session, or a loop's instance, live. A prompt that waits
    /// for a slot does: a parked session has no actor to be granted one.
    pub(super) fn look_whether_quiet(&mut self) {
        let live = &self.session.live;
        let waits = !self.waiting.is_empty() || !self.outside.is_empty();
        let at_rest = self.gates.is_empty() && !waits && live.stops.is_empty();
        let mut all = at_rest && !self.shutting.is_under_way();
        // A process belongs to its actor, and its end is to be told.
        let state = &self.session.state;
        all &= state.running_processes().next().is_none();
        all &= !state.loops.values().any(|l| l.has_notices());
        for (loop_id, seat) in &mut self.seats {
            let of = live.of(*loop_id);
            let quiet = at_rest && of.is_quiet() && !of.waits_for_slot;
            all &= quiet;
            note(&mut seat.quiet_since, quiet);
        }
        // Who waits for a host gate has nobody else to get its answer from.
        all &= self.host_gates.is_empty();
        note(&mut self.quiet_since, all && live.is_quiet());
    }

    /// At most one frame in 250 ms, the last one always delivered (G7).
    pub(super) fn notify_state(&mut self, loop_id: LoopId) {
        let now = Instant::now();
        let seat = self.seat(loop_id);
        match seat.notified {
            Some(last) if now < last + NOTIFY_EVERY => {
                seat.notify_due.get_or_insert(last + NOTIFY_EVERY);
            }
            _ => self.notify_now(loop_id, now),
        }
    }

    fn notify_now(&mut self, loop_id: LoopId, now: Instant) {
        let seat = self.seat(loop_id);
        seat.notify_due = None;
        seat.notified = Some(now);
        let Some(of) = self.session.state.loops.get(&loop_id) else {
            return;
        };
        let event = Event {
            id: EventId::ZERO,
            session_id: self.id,
            loop_id: LoopId::ZERO,
            turn_id: TurnId::ZERO,
            at: self.deps.surroundings.now(),
            cause: Default::default(),
            body: EventBody::CommandStateChanged {
                harness_id: of.harness.clone(),
            },
        };
        self.publish_ephemeral(&event);
    }
}

/// Keeps the time since when it is quiet.
fn note(since: &mut Option<Instant>, quiet: bool) {
    match (quiet, since.is_some()) {
        (true, false) => *since = Some(Instant::now()),
        (false, true) => *since = None,
        _ => {}
    }
}
