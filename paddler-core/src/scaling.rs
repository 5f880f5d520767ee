//! How does the cost of routing grow, and what breaks first?
//!
//! There is no code here, only the page. Its tables are printed by
//!
//! ```sh
//! cargo run --release -p paddler-benches --bin goals -- --only growth
//! ```
//!
//! The first is measured, in CPU time of one core; the others follow from it by the formulas that stand in them.
//!
//! # What grows with what
//!
//! Each cost has a fixed part and a part for each more. It is measured at two sizes, of which the second is beyond what most have.
//!
//! | what | grows with | fixed | each more | at | it is | at | it is |
//! |---|---|---:|---:|---:|---:|---:|---:|
//! | pick, `seed`, affinity | upstreams | 153.9 ns | 0.411 ns | 100 | 195 ns | 10000 | 4262 ns |
//! | pick, `seed`, miss | upstreams | 322.2 ns | 0.679 ns | 100 | 390 ns | 10000 | 7115 ns |
//! | pick, `seed`, shed | upstreams | 111.5 ns | 0.165 ns | 100 | 128 ns | 10000 | 1765 ns |
//! | pick, `balancer`, affinity | upstreams | 129.5 ns | 0.664 ns | 100 | 196 ns | 10000 | 6774 ns |
//! | pick, `balancer`, miss | upstreams | 127.8 ns | 0.680 ns | 100 | 196 ns | 10000 | 6925 ns |
//! | pick, `balancer`, shed | upstreams | 114.1 ns | 0.180 ns | 100 | 132 ns | 10000 | 1916 ns |
//! | pick, `gateway`, affinity | upstreams | 143.0 ns | 1.008 ns | 100 | 244 ns | 10000 | 10218 ns |
//! | pick, `gateway`, miss | upstreams | 141.9 ns | 0.982 ns | 100 | 240 ns | 10000 | 9965 ns |
//! | pick, `gateway`, shed | upstreams | 106.9 ns | 0.235 ns | 100 | 130 ns | 10000 | 2452 ns |
//! | pick, `gateway`, affinity | models of each upstream | 826.7 ns | -0.016 ns | 8 | 827 ns | 512 | 819 ns |
//! | pick, `gateway`, affinity | adapters active at each upstream | 824.5 ns | -0.096 ns | 1 | 824 ns | 64 | 818 ns |
//! | pick, tree of filters that keep nearly all | filters | 229.9 ns | 16.059 ns | 1 | 246 ns | 32 | 744 ns |
//! | publish of a new load | upstreams | 44613.1 ns | 90.772 ns | 100 | 53690 ns | 10000 | 952337 ns |
//! | publish of other models | models of each of 100 upstreams | 7607.7 ns | 4921.747 ns | 8 | 46982 ns | 512 | 2527542 ns |
//! | one more waits, and leaves | who wait | 731.0 ns | 0.076 ns | 0 | 731 ns | 10000 | 1496 ns |
//! | facts of a body: chat | KiB | 292.6 ns | 500.089 ns | 1 | 793 ns | 1024 | 512383 ns |
//! | facts of a body: prose | KiB | 319.1 ns | 169.832 ns | 1 | 489 ns | 1024 | 174227 ns |
//! | facts of a body: image | KiB | 496.4 ns | 53.742 ns | 1 | 550 ns | 1024 | 55529 ns |
//! | memory of a board and of what it has published | upstreams | 15065.3 B | 2281.547 B | 100 | 243220 B | 10000 | 22830532 B |
//! | memory of a board and of what it has published | models of each of 100 upstreams | 176804.0 B | 8302.000 B | 8 | 243220 B | 512 | 4427428 B |
//!
//! - **Upstreams**: a pick scans columns in the order of places, so it is linear, without a lock or an allocation. A snapshot is built as
//!   a whole, so a publish is linear, too; whatever the sources say, there are at most 100 a second
//!   (`publish_every` of [`BoardOptions`](crate::status::BoardOptions)).
//! - **Models and adapters**: who has a name is a set of bits that is kept with the snapshot, so a pick pays one look-up of the name that is
//!   asked for. They weigh in memory, and in the publish that follows a changed list.
//! - **Depth**: a walk meets the nodes on its way only, so what counts is the longest way from the root to a leaf, and how many upstreams
//!   are still there. A filter that keeps all of them costs one scan, as in the table; one that leaves few makes all behind it cheap.
//! - **Bodies**: every byte is looked at once, as it comes; structure costs more than text, and text more than an image in base64. A body is
//!   held until it is sent, within `limits.buffered_bodies`.
//! - **Streams**: what an event costs does not depend on how many streams there are (rows `stream` in the README of `benches`): 1,000 of 50
//!   events a second are 50,000 x 13 µs, 0.66 cores. An idle one costs memory alone (`goals -- --only streams`): 16.8 KiB, so 10,000 are 164 MiB.
//! - **Who waits**: coming and leaving costs hardly more where thousands wait; a round of handing out asks one of those who are alike
//!   (`cargo bench -p paddler-benches --bench scheduling -- round`).
//! - **Cores**: picks take no lock, and write only where a place is taken. Each of two threads that pick keeps 0.97 of its speed, and 0.88 where it
//!   takes and leaves a place, too, while a third one publishes 100 times a second (`goals -- --only threads`; more cores were not there). If each
//!   more costs as much as the second, 8 of them do `8 x 0.97^7`, 6.5 times what one does, or 3.3 with places.
//! - **Routers**: they share nothing. Each looks at its upstreams, counts its own requests exactly, and those of others as of its last look.
//!
//! # One router
//!
//! Each upstream is a vLLM with a page of 52 KB, polled once a second; `CPU of a look` is what the router took for each of 1,000 that it polled four
//! times a second, with the system's part and the snapshots that they bring; memory is what it held then, and with one of them.
//!
//! | one router, by upstreams | formula | 100 | 1,000 | 10,000 | 100,000 |
//! |---|---|---:|---:|---:|---:|
//! | upstreams of a router | n | 100 | 1000 | 10000 | 100000 |
//! | looks at an upstream | k | 1.00 /s | 1.00 /s | 1.00 /s | 1.00 /s |
//! | bytes from an upstream | k x bytes of a look | 0.05 MB/s | 0.05 MB/s | 0.05 MB/s | 0.05 MB/s |
//! | looks of a router | n | 100 /s | 1000 /s | 10000 /s | 100000 /s |
//! | CPU of looks | n x CPU of a look | 0.01 cores | 0.11 cores | 1.12 cores | 11.21 cores |
//! | bytes into a router | n x bytes of a look | 5.21 MB/s | 52.15 MB/s | 521 MB/s | 5215 MB/s |
//! | a snapshot | fixed + n x each | 0.05 ms | 0.14 ms | 0.95 ms | 9.12 ms |
//! | snapshots | 1 / a snapshot, at most 100 | 100 /s | 100 /s | 100 /s | 100 /s |
//! | CPU of snapshots | snapshots x a snapshot | 0.01 cores | 0.01 cores | 0.10 cores | 0.91 cores |
//! | memory | fixed + n x each | 14.70 MiB | 35.29 MiB | 241 MiB | 2300 MiB |
//! | a pick (`gateway`, miss), at all levels | fixed + n x each | 0.24 µs | 1.12 µs | 9.97 µs | 98.38 µs |
//! | CPU of 1,000 picks a second | 1,000 x a pick | 0.00 cores | 0.00 cores | 0.01 cores | 0.10 cores |
//!
//! Proxying is not in it, and costs the same over one upstream and over thousands: 29 µs a small chat, 13 µs an event (rows `plain` and `stream` of
//! the same README). 1,000 small chats a second are 0.029 cores, which is what looking at 200 upstreams costs, with the snapshots of it:
//! `0.029 = 100 x fixed + n x (CPU of a look + 100 x each)`, with what a publish of a new load takes by the first table. Ten answers a second
//! of 500 events each are 0.066 cores, as the looks at 590.
//! So where answers are streamed, events are what costs, and few routers have so many upstreams that looking at them shows. To poll more
//! rarely (`poll: {interval: 5s}`) divides that; where one router has all the traffic it loses little, since its own requests are counted at
//! once.
//!
//! # A hundred routers over 100,000 upstreams
//!
//! No machine here has them, so this is computed alone. `n` is how many upstreams a router looks at, `k` how many routers look at an upstream;
//! each look is repeated once a second.
//!
//! - *all poll all*: what comes of itself.
//! - *agents tell all*: an agent beside each engine tells every router, in the time and bytes that `--bin agents` has for a word.
//! - *each polls 4 %*: a router has 4,000 upstreams, and an upstream 4 routers.
//! - *20 before 80*: 80 routers have 1,250 upstreams each, which nobody else has; 20 others are before them (`paddler://`), and have 80
//!   upstreams. The figures are those of the 80. Besides, each of these is asked by 20 how all of its upstreams are, at 6,200 instructions for
//!   each (`gates`, `status/told/100`): 20 x 1,250 x 6,200 is 155 million a second, some hundredths of a core.
//!
//! | 100 routers, 100,000 upstreams | formula | all poll all | agents tell all | each polls 4 % | 20 before 80 |
//! |---|---|---:|---:|---:|---:|
//! | upstreams of a router | n | 100000 | 100000 | 4000 | 1250 |
//! | looks at an upstream | k | 100 /s | 100 /s | 4.00 /s | 1.00 /s |
//! | bytes from an upstream | k x bytes of a look | 5.21 MB/s | 0.03 MB/s | 0.21 MB/s | 0.05 MB/s |
//! | looks of a router | n | 100000 /s | 100000 /s | 4000 /s | 1250 /s |
//! | CPU of looks | n x CPU of a look | 11.21 cores | 17.50 cores | 0.45 cores | 0.14 cores |
//! | bytes into a router | n x bytes of a look | 5215 MB/s | 25.00 MB/s | 209 MB/s | 65.19 MB/s |
//! | a snapshot | fixed + n x each | 9.12 ms | 9.12 ms | 0.41 ms | 0.16 ms |
//! | snapshots | 1 / a snapshot, at most 100 | 100 /s | 100 /s | 100 /s | 100 /s |
//! | CPU of snapshots | snapshots x a snapshot | 0.91 cores | 0.91 cores | 0.04 cores | 0.02 cores |
//! | memory | fixed + n x each | 2300 MiB | 2300 MiB | 104 MiB | 41.01 MiB |
//! | a pick (`gateway`, miss), at all levels | fixed + n x each | 98.38 µs | 98.38 µs | 4.07 µs | 1.59 µs |
//! | CPU of 1,000 picks a second | 1,000 x a pick | 0.10 cores | 0.10 cores | 0.00 cores | 0.00 cores |
//!
//! If all poll all, it breaks in this order:
//!
//! 1. **The engines**: a hundred pages a second from each, made beside the tokens.
//! 2. **Network and CPU of polls**: gigabytes a second into each router, and eleven cores to take them in.
//! 3. **Snapshots**: the loop that builds them is one task, and has hardly time left for the events between them. What a pick sees is older by as much as
//!    a snapshot takes.
//! 4. **Memory**: some GiB, most of it connections and buffers for polls.
//! 5. **Picks**: a tenth of a millisecond. No answer that takes a second shows it, but it is over three times what proxying a small chat costs.
//!
//! # What routers do not know of each other
//!
//! A router counts its own requests at once. What others have sent it sees at its next look, `I` later. Between two looks an upstream gets
//! `L x I / N x (k - 1) / k` requests that a router does not know of, where `L` come in a second over `N` upstreams: with 10,000 a second over 100,000
//! upstreams, one look a second and all routers looking at all, 0.1. That is the mean.
//!
//! The worst is that all see the same upstream as the best and send their next request there. Each counts its own before it picks again, so these are
//! `k` at once: 100 if all look at all, 4 with four routers for an upstream, 1 with one. What keeps it from the worst is that equal ones are
//! drawn at random, that each router has other requests open, and that their looks do not fall together.
//!
//! The same bound holds for slots. A limit is kept to the last one by one router; `k` together may pass it by what they have sent since their last looks,
//! and the engine queues that. Where it must not happen, an upstream has one router, or each router a part of its limit.
//!
//! # What to do, from the simplest
//!
//! 1. **Poll more rarely.** All that polls cost is divided by the interval, and what is not known of others is multiplied by it.
//! 2. **Give each router a part.** A `k` of 2 to 4 is enough to lose one of them; `n` falls to `k x N / R` with `R` routers, and everything with it. Who
//!    gets which is for the host to say (an `upstreams_file` for each, or a `StatusSource` of one's own). Whoever is in
//!    front should send a session to the same routers, since only they know where it was.
//! 3. **Two levels.** Zones of some 1,000 upstreams with one or two routers, and others before them that see a zone as one upstream, with its room by model.
//!    Slots of an upstream are kept by the one or two that have it, and only the choice of a zone goes by what is a look old. It costs a second
//!    hop, which is what proxying costs.
//! 4. **Agents in the place of polls.** Each reads the page beside its engine and tells some hundred bytes, which takes the load from engines
//!    and network. It does not take it from the router, where a word costs more than a poll (175 and 112 µs, each with the snapshots that it brings): so with 2 or 3, not in their place.
//! 5. **Sampling.** A pick that looked at a few upstreams drawn at random would not grow at all. No tree does: `two_choices` draws from those that the
//!    filters have left, and these have scanned. It would not find the last free slot of a full pool, and saves nothing that shows below
//!    some 10,000 upstreams for a router.
//!
//! *Measured in November 2026, rustc 1.95.0. On 2 cores (x86_64 GenuineIntel avx2 avx512f avx512vl erms fsrm), with 1.24 processes ready to run in the last minute; built for release.*
