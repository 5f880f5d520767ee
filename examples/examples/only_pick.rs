//! Who should get this request? No proxy, no runtime: the choice and the lease, and the sending is yours.
//!
//! Built like this, the library can do without its default features: `default-features = false`.

use std::error::Error;

use paddler_core::Moment;
use paddler_core::request::Facts;
use paddler_core::schedule::{Ask, Explanation, Scratch, trees};
use paddler_core::status::{Report, StatusBoard, StatusEvent};
use paddler_core::upstream::UpstreamSpec;

fn main() -> Result<(), Box<dyn Error>> {
    // The board is told what there is and how it is, by whoever knows. Time is a number that you give.
    let mut board = StatusBoard::new(trees::balancer());
    let now = Moment::ZERO;
    for (name, busy) in [("gpu-1", 3), ("gpu-2", 1)] {
        let spec = UpstreamSpec::new(name, "http://only-you-need-to-know")?;
        let mut report = Report::new();
        (report.slots_busy, report.slots_total) = (Some(busy), Some(4));
        board.apply(StatusEvent::Upsert(spec.clone()), now);
        board.apply(
            StatusEvent::Report {
                id: spec.id,
                report,
                sample: None,
            },
            now,
        );
    }
    // From here on any number of threads pick from what is published.
    let snapshot = board.publish(now);

    // What is asked. A whole request body can be read into facts, too: `paddler_core::request`.
    let facts = Facts::new();
    let mut scratch = Scratch::default();

    // The lease counts at once, so nine requests in the same moment do not all go to one engine.
    let mut leases = Vec::new();
    for seed in 0..9 {
        match snapshot.reserve(&Ask::new(&facts, now, seed), &mut scratch, &mut ()) {
            Ok(mut lease) => {
                println!("request {seed} goes to {}", lease.upstream());
                // Here you would send it, and tell the lease how it goes.
                lease.sent();
                lease.first_byte();
                leases.push(lease);
            }
            Err(ending) => println!("request {seed} waits: {}", ending.reason),
        }
    }
    assert_eq!(
        leases.len(),
        4,
        "four slots were free: one on gpu-1, three on gpu-2"
    );

    // The answer to the first has come to its end: its place is free again.
    leases.remove(0).complete();
    let mut why = Explanation::default();
    let next = snapshot.reserve(&Ask::new(&facts, now, 9), &mut scratch, &mut why);
    let next = next.map_err(|ending| ending.reason.to_string())?;
    println!("request 9: {}", why.summary(snapshot.tree()));
    assert_eq!(why.survivors, [next.upstream().clone()], "nobody else had a slot");
    next.complete();
    Ok(())
}
