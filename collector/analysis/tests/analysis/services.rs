//! Services to simulate, each with another way of waiting.

use crate::simulator::{Room, Run, Signal};

/// A service's names for one remote call: its client's span and the server's.
const STORE: (&str, &str) = ("web:Store/Read", "store:read");
const RANK: (&str, &str) = ("web:Rank", "ranker:score");
const USERS: (&str, &str) = ("web:Users", "users:load");

async fn serve(run: Run, operation: &'static str, number: u64, us: std::ops::Range<u64>) {
    run.work(operation, number, us).await;
}

/// Sequential calls.
pub(crate) async fn sequence(run: Run) {
    let r = &run;
    r.span(0, "web:page", |page| async move {
        r.work("web:page", 1, 300..900).await;
        for number in 0..3 {
            r.call(page, STORE, number, |_| {
                serve(r.clone(), STORE.1, number, 1_000..4_000)
            })
            .await;
            r.work("web:page", 2 + number, 100..600).await;
        }
    })
    .await;
}

/// Three parallel calls, then work on their results.
pub(crate) async fn fan_out(run: Run) {
    let r = &run;
    r.span(0, "web:page", |page| async move {
        r.work("web:page", 1, 300..900).await;
        let branches = [
            (STORE, 1_000..5_000),
            (RANK, 2_000..6_000),
            (USERS, 500..3_000),
        ];
        let all = branches.map(|(names, us)| {
            let run = r.clone();
            r.spawn(async move {
                run.call(page, names, 1, |_| serve(run.clone(), names.1, 1, us))
                    .await;
            })
        });
        r.join(all.into()).await;
        r.work("web:page", 2, 300..900).await;
    })
    .await;
}

/// A call that is started first and awaited last, while other work continues.
pub(crate) async fn awaited_late(run: Run) {
    let r = &run;
    r.span(0, "web:page", |page| async move {
        r.work("web:page", 1, 200..400).await;
        let run = r.clone();
        let ranked = r.spawn(async move {
            run.call(page, RANK, 1, |_| {
                serve(run.clone(), RANK.1, 1, 2_000..9_000)
            })
            .await;
        });
        r.work("web:page", 2, 200..500).await;
        r.call(page, STORE, 1, |_| {
            serve(r.clone(), STORE.1, 1, 1_000..3_000)
        })
        .await;
        r.work("web:page", 3, 1_000..3_000).await;
        r.call(page, USERS, 1, |_| serve(r.clone(), USERS.1, 1, 500..2_000))
            .await;
        r.work("web:page", 4, 200..500).await;
        ranked.wait(r).await;
        r.work("web:page", 5, 300..900).await;
    })
    .await;
}

/// Two tasks with one span each. One needs the other's result, and waits for it inside its span.
pub(crate) async fn task_waits(run: Run) {
    let r = &run;
    r.span(0, "web:page", |page| async move {
        r.work("web:page", 1, 200..600).await;
        let made = Signal::default();
        let (run, told) = (r.clone(), made.clone());
        let maker = r.spawn(async move {
            run.span(page, "web:candidates", |_| async {
                run.work("web:candidates", 1, 1_000..7_000).await;
            })
            .await;
            told.set(&run);
        });
        let run = r.clone();
        let renderer = r.spawn(async move {
            run.span(page, "web:render", |_| async {
                run.work("web:render", 1, 200..400).await;
                made.wait(&run).await;
                run.work("web:render", 2, 800..1_600).await;
            })
            .await;
        });
        r.join(vec![maker, renderer]).await;
        r.work("web:page", 2, 300..900).await;
    })
    .await;
}

/// A task that waits, inside its span, for the results of two remote calls of other tasks.
pub(crate) async fn gather(run: Run) {
    let r = &run;
    r.span(0, "web:page", |page| async move {
        let mut signals = Vec::new();
        for (names, us) in [(STORE, 1_000..6_000), (RANK, 2_000..5_000)] {
            let run = r.clone();
            signals.push(r.spawn(async move {
                run.call(page, names, 1, |_| serve(run.clone(), names.1, 1, us))
                    .await;
            }));
        }
        let (run, both) = (r.clone(), signals.clone());
        let merged = r.spawn(async move {
            run.span(page, "web:merge", |_| async {
                run.join(both).await;
                run.work("web:merge", 1, 300..700).await;
            })
            .await;
        });
        merged.wait(r).await;
        r.work("web:page", 2, 200..500).await;
    })
    .await;
}

/// Two parallel branches: a call, and a span that waits for the call's result amid its own work.
pub(crate) async fn cross_branch(run: Run) {
    let r = &run;
    r.span(0, "web:page", |page| async move {
        r.work("web:page", 1, 200..400).await;
        let token = Signal::default();
        let (run, told) = (r.clone(), token.clone());
        let users = r.spawn(async move {
            run.call(page, USERS, 1, |_| {
                serve(run.clone(), USERS.1, 1, 1_500..6_000)
            })
            .await;
            told.set(&run);
        });
        let run = r.clone();
        let branch = r.spawn(async move {
            let (run, token) = (&run, &token);
            run.span(page, "web:branch", |branch| async move {
                run.work("web:branch", 1, 300..800).await;
                token.wait(run).await;
                run.work("web:branch", 2, 100..300).await;
                run.call(branch, STORE, 1, |_| {
                    serve(run.clone(), STORE.1, 1, 1_000..3_000)
                })
                .await;
            })
            .await;
        });
        r.join(vec![users, branch]).await;
        r.work("web:page", 2, 200..500).await;
    })
    .await;
}

/// Six calls through two connections; a call's span begins when the call has a connection.
pub(crate) async fn pool(run: Run) {
    pooled(run, false).await;
}

/// Like [`pool`], but each call is inside another span, `web:read`, which begins when the call
/// begins to wait for a connection.
pub(crate) async fn queue(run: Run) {
    pooled(run, true).await;
}

async fn pooled(run: Run, waits_inside: bool) {
    let r = &run;
    r.span(0, "web:page", |page| async move {
        r.work("web:page", 1, 200..600).await;
        let room = Room::of(2);
        let all = (0..6u64).map(|number| {
            let (run, room) = (r.clone(), room.clone());
            r.spawn(async move {
                let (run, room) = (&run, &room);
                if waits_inside {
                    run.span(page, "web:read", |span| async move {
                        room.inside(run, number, async {
                            run.call(span, STORE, number, |_| {
                                serve(run.clone(), STORE.1, number, 500..4_000)
                            })
                            .await;
                        })
                        .await;
                    })
                    .await;
                } else {
                    room.inside(run, number, async {
                        run.call(page, STORE, number, |_| {
                            serve(run.clone(), STORE.1, number, 500..4_000)
                        })
                        .await;
                    })
                    .await;
                }
            })
        });
        let all = all.collect();
        r.join(all).await;
        r.work("web:page", 2, 200..600).await;
    })
    .await;
}

/// Two branches share a lock; each prepares, holds it, and goes on.
pub(crate) async fn lock(run: Run) {
    let r = &run;
    r.span(0, "web:page", |page| async move {
        let room = Room::of(1);
        let branches: [(&'static str, &'static str, &'static str); 2] = [
            ("web:prepare a", "web:update a", "web:finish a"),
            ("web:prepare b", "web:update b", "web:finish b"),
        ];
        let all = branches.map(|(prepare, update, finish)| {
            let (run, room) = (r.clone(), room.clone());
            r.spawn(async move {
                let (run, who) = (&run, u64::from(prepare == "web:prepare b"));
                run.span(page, prepare, |_| run.work(prepare, 1, 300..2_500))
                    .await;
                room.inside(
                    run,
                    who,
                    run.span(page, update, |_| run.work(update, 1, 1_000..3_000)),
                )
                .await;
                run.span(page, finish, |_| run.work(finish, 1, 200..800))
                    .await;
            })
        });
        r.join(all.into()).await;
        r.work("web:page", 2, 200..500).await;
    })
    .await;
}

/// Elements are made one by one, and shown one by one.
pub(crate) async fn pipeline(run: Run) {
    let r = &run;
    r.span(0, "web:page", |page| async move {
        let made: Vec<Signal> = (0..5).map(|_| Signal::default()).collect();
        let (run, tell) = (r.clone(), made.clone());
        let maker = r.spawn(async move {
            for (number, signal) in (0u64..).zip(&tell) {
                run.span(page, "web:make", |span| {
                    run.about(span, number);
                    run.work("web:make", number, 300..2_500)
                })
                .await;
                signal.set(&run);
            }
        });
        let run = r.clone();
        let shower = r.spawn(async move {
            for (number, signal) in (0u64..).zip(&made) {
                signal.wait(&run).await;
                run.span(page, "web:show", |span| {
                    run.about(span, number);
                    run.work("web:show", number, 300..2_000)
                })
                .await;
            }
        });
        r.join(vec![maker, shower]).await;
        r.work("web:page", 2, 100..400).await;
    })
    .await;
}

/// A timer that is not recorded sends the collected data 8 ms after the request's arrival, unless
/// collecting takes longer.
pub(crate) async fn timer(run: Run) {
    let r = &run;
    r.span(0, "web:page", |page| async move {
        r.call(page, USERS, 1, |_| {
            serve(r.clone(), USERS.1, 1, 1_000..5_000)
        })
        .await;
        r.sleep_until(8_000_000).await;
        r.call(page, STORE, 1, |_| {
            serve(r.clone(), STORE.1, 1, 1_000..3_000)
        })
        .await;
        r.work("web:page", 2, 200..500).await;
    })
    .await;
}

/// A cache is asked first; only some requests go on to the store, and some of those twice.
pub(crate) async fn branches(run: Run) {
    let r = &run;
    r.span(0, "web:page", |page| async move {
        r.span(page, "web:cache", |_| r.work("web:cache", 1, 200..700))
            .await;
        if r.chance(1, 60) {
            r.call(page, STORE, 1, |_| {
                serve(r.clone(), STORE.1, 1, 1_000..4_000)
            })
            .await;
            if r.chance(2, 30) {
                r.work("web:page", 1, 100..300).await;
                r.call(page, STORE, 2, |_| {
                    serve(r.clone(), STORE.1, 2, 1_000..4_000)
                })
                .await;
            }
        }
        r.work("web:page", 2, 300..900).await;
    })
    .await;
}

/// The answer is sent while its data is still being written.
pub(crate) async fn after_answer(run: Run) {
    let r = &run;
    r.span(0, "web:page", |page| async move {
        r.work("web:page", 1, 200..600).await;
        r.call(page, STORE, 1, |_| {
            serve(r.clone(), STORE.1, 1, 1_000..4_000)
        })
        .await;
        let run = r.clone();
        // Nobody waits for this task.
        let _written = r.spawn(async move {
            run.span(page, "web:audit", |_| {
                run.work("web:audit", 1, 1_000..6_000)
            })
            .await;
        });
        r.work("web:page", 2, 300..900).await;
    })
    .await;
}

/// Three calls at once, awaited one after the other, with work after each.
pub(crate) async fn awaited_in_turn(run: Run) {
    let r = &run;
    r.span(0, "web:page", |page| async move {
        r.work("web:page", 1, 200..400).await;
        let branches = [
            (USERS, 500..4_000),
            (STORE, 1_000..5_000),
            (RANK, 1_000..6_000),
        ];
        let all = branches.map(|(names, us)| {
            let run = r.clone();
            r.spawn(async move {
                run.call(page, names, 1, |_| serve(run.clone(), names.1, 1, us))
                    .await;
            })
        });
        for (number, one) in (2..).zip(all) {
            one.wait(r).await;
            r.work("web:page", number, 300..700).await;
        }
    })
    .await;
}

/// Two branches call a store that allows one commit at a time. One of them ranks the data that it
/// read.
pub(crate) async fn lock_in_calls(run: Run) {
    let r = &run;
    r.span(0, "web:page", |page| async move {
        r.work("web:page", 1, 200..500).await;
        let room = Room::of(1);
        let all = [("web:left", 0u64), ("web:right", 1)].map(|(name, who)| {
            let (run, room) = (r.clone(), room.clone());
            r.spawn(async move {
                let (run, room) = (&run, &room);
                run.span(page, name, |branch| async move {
                    run.work(name, 1, 100..1_500).await;
                    run.call(branch, STORE, who, |store| async move {
                        run.work(STORE.1, who, 500..2_500).await;
                        room.inside(
                            run,
                            who,
                            run.span(store, "store:commit", |_| {
                                run.work("store:commit", who, 700..2_000)
                            }),
                        )
                        .await;
                    })
                    .await;
                    if who == 1 {
                        run.call(branch, RANK, 1, |_| {
                            serve(run.clone(), RANK.1, 1, 1_000..2_000)
                        })
                        .await;
                    }
                })
                .await;
            })
        });
        r.join(all.into()).await;
        r.work("web:page", 2, 200..500).await;
    })
    .await;
}
