//! Services whose requests wait for each other, because they share workers, connections or locks,
//! and one service without shared resources.

use crate::simulator::{Room, Run};
use std::future::Future;
use std::pin::Pin;

/// Function that serves a request.
pub(crate) type Service = Box<dyn FnMut(Run) -> Pin<Box<dyn Future<Output = ()>>>>;

const STORE: (&str, &str) = ("web:Store/Read", "store:read");
const WRITE: (&str, &str) = ("web:Store/Write", "store:write");
const USERS: (&str, &str) = ("web:Users", "users:load");

/// Returns a service whose requests share a room with this number of places.
fn shared<F: Future<Output = ()> + 'static>(
    places: u64,
    serve: impl Fn(Run, Room) -> F + 'static,
) -> Service {
    let room = Room::of(places);
    Box::new(move |run| Box::pin(serve(run, room.clone())))
}

/// The store has two workers; a span of it begins when one of them takes the call.
pub(crate) fn workers() -> Service {
    shared(2, |run, room| async move {
        let (r, room) = (&run, &room);
        r.span(0, "web:page", |page| async move {
            r.work("web:page", 1, 300..900).await;
            r.call_in(page, STORE, 1, room, |_| r.work(STORE.1, 1, 1_000..3_000))
                .await;
            r.work("web:page", 2, 100..500).await;
        })
        .await;
    })
}

/// A span of the store begins when the call arrives, waits for one of two workers, and then works.
pub(crate) fn wait_inside() -> Service {
    shared(2, |run, room| async move {
        let (r, room) = (&run, &room);
        r.span(0, "web:page", |page| async move {
            r.work("web:page", 1, 300..900).await;
            r.call(page, STORE, 1, |_| async move {
                room.inside(r, r.seed(), r.work(STORE.1, 1, 1_000..3_000))
                    .await;
            })
            .await;
            r.work("web:page", 2, 100..500).await;
        })
        .await;
    })
}

/// A request reads, and then commits alone: the span of the commit begins when it holds the lock.
pub(crate) fn commit_lock() -> Service {
    shared(1, |run, room| async move {
        let (r, room) = (&run, &room);
        r.span(0, "web:page", |page| async move {
            r.work("web:page", 1, 300..900).await;
            r.call(page, STORE, 1, |store| async move {
                r.work(STORE.1, 1, 500..1_500).await;
                room.inside(
                    r,
                    r.seed(),
                    r.span(store, "store:commit", |_| {
                        r.work("store:commit", 1, 500..1_500)
                    }),
                )
                .await;
                r.work(STORE.1, 2, 100..300).await;
            })
            .await;
        })
        .await;
    })
}

/// Like [`commit_lock`], but the span of the commit begins when it requests the lock.
pub(crate) fn commit_waits() -> Service {
    shared(1, |run, room| async move {
        let (r, room) = (&run, &room);
        r.span(0, "web:page", |page| async move {
            r.work("web:page", 1, 300..900).await;
            r.call(page, STORE, 1, |store| async move {
                r.work(STORE.1, 1, 500..1_500).await;
                r.span(store, "store:commit", |_| async move {
                    room.inside(r, r.seed(), r.work("store:commit", 1, 500..1_500))
                        .await;
                })
                .await;
                r.work(STORE.1, 2, 100..300).await;
            })
            .await;
        })
        .await;
    })
}

/// Requests share three connections; a call's span begins when it has one.
pub(crate) fn connections() -> Service {
    shared(3, |run, room| async move {
        let (r, room) = (&run, &room);
        r.span(0, "web:page", |page| async move {
            r.work("web:page", 1, 300..900).await;
            for number in 0..2 {
                room.inside(r, r.seed(), async move {
                    r.call(page, STORE, number, |_| r.work(STORE.1, number, 500..2_000))
                        .await;
                })
                .await;
                r.work("web:page", 2 + number, 100..500).await;
            }
        })
        .await;
    })
}

/// Two operations of the store share two workers.
pub(crate) fn mixed() -> Service {
    shared(2, |run, room| async move {
        let (r, room) = (&run, &room);
        r.span(0, "web:page", |page| async move {
            r.work("web:page", 1, 300..900).await;
            if r.chance(1, 70) {
                r.call_in(page, STORE, 1, room, |_| r.work(STORE.1, 1, 500..2_500))
                    .await;
            } else {
                r.call_in(page, WRITE, 1, room, |_| r.work(WRITE.1, 1, 1_000..5_000))
                    .await;
            }
        })
        .await;
    })
}

/// Three parallel reads by four workers that all requests share, and a parallel call to another
/// service.
pub(crate) fn fan_out() -> Service {
    shared(4, |run, room| async move {
        let r = &run;
        r.span(0, "web:page", |page| async move {
            r.work("web:page", 1, 300..900).await;
            let mut all: Vec<_> = (0..3)
                .map(|number| {
                    let (run, room) = (r.clone(), room.clone());
                    r.spawn(async move {
                        let r = &run;
                        r.call_in(page, STORE, number, &room, |_| {
                            r.work(STORE.1, number, 500..2_500)
                        })
                        .await;
                    })
                })
                .collect();
            let run = r.clone();
            all.push(r.spawn(async move {
                run.call(page, USERS, 1, |_| run.work(USERS.1, 1, 1_000..3_000))
                    .await;
            }));
            r.join(all).await;
            r.work("web:page", 2, 100..500).await;
        })
        .await;
    })
}

/// Three stages, each with one worker of its own.
pub(crate) fn stages() -> Service {
    let rooms = [0; 3].map(|_| Room::of(1));
    Box::new(move |run| {
        let rooms = rooms.clone();
        Box::pin(async move {
            let r = &run;
            r.span(0, "job:run", |job| async move {
                for (room, name) in rooms.iter().zip(["job:parse", "job:plan", "job:store"]) {
                    room.inside(
                        r,
                        r.seed(),
                        r.span(job, name, |_| r.work(name, 1, 500..1_500)),
                    )
                    .await;
                }
            })
            .await;
        })
    })
}

/// A service without shared resources, to test open arrivals alone.
pub(crate) fn unshared() -> Service {
    Box::new(|run| {
        Box::pin(async move {
            let r = &run;
            r.span(0, "web:page", |page| async move {
                r.work("web:page", 1, 300..900).await;
                r.call(page, STORE, 1, |_| r.work(STORE.1, 1, 1_000..3_000))
                    .await;
                r.call(page, USERS, 1, |_| r.work(USERS.1, 1, 500..1_500))
                    .await;
            })
            .await;
        })
    })
}

/// Two stores of one worker each; a request goes to either.
pub(crate) fn replicas() -> Service {
    let rooms = [0; 2].map(|_| Room::of(1));
    Box::new(move |run| {
        let rooms = rooms.clone();
        Box::pin(async move {
            let r = &run;
            let store = usize::from(r.chance(1, 50));
            let room = &rooms[store];
            r.span(0, "web:page", |page| async move {
                r.work("web:page", 1, 300..900).await;
                r.go_to(store as u128);
                r.call_in(page, STORE, 1, room, |_| r.work(STORE.1, 1, 1_000..3_000))
                    .await;
            })
            .await;
        })
    })
}

/// The store reads its disk, and then works under a lock that nothing shows.
pub(crate) fn late_lock() -> Service {
    shared(1, |run, room| async move {
        let (r, room) = (&run, &room);
        r.span(0, "web:page", |page| async move {
            r.work("web:page", 1, 300..900).await;
            r.call(page, STORE, 1, |store| async move {
                r.span(store, "store:disk", |_| r.work("store:disk", 1, 500..1_500))
                    .await;
                room.inside(r, r.seed(), r.work(STORE.1, 1, 500..1_500))
                    .await;
            })
            .await;
        })
        .await;
    })
}
