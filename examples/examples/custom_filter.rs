//! A filter that goes by data of one's own: a price that the spec carries, and a battery that the report carries.

use std::error::Error;

use paddler_core::Moment;
use paddler_core::request::Facts;
use paddler_core::schedule::{Ask, Node, Scratch, Signals, Tree, filter_fn, filters};
use paddler_core::status::{Report, StatusBoard, StatusEvent};
use paddler_core::upstream::{UpstreamId, UpstreamSpec};

/// What a thousand tokens cost there. It does not change, so it rides on the spec.
struct Price(f64);

/// How full the battery is, 0 to 1. It changes, so it rides on each report. A report is whole and replaces the last one, a
/// poll's included: where upstreams are polled, send it in the extensions of the spec instead, or poll yourself.
struct Battery(f64);

fn main() -> Result<(), Box<dyn Error>> {
    // Must: an upstream without a battery has mains, and passes. Should: the cheap ones, if any is left.
    let powered = filter_fn("powered", |cx, upstream| {
        let battery = cx
            .report(upstream)
            .and_then(|report| report.extensions.get::<Battery>());
        battery.is_none_or(|battery| battery.0 > 0.2)
    });
    let cheap = filter_fn("cheap", |cx, upstream| {
        cx.spec(upstream)
            .extensions
            .get::<Price>()
            .is_some_and(|price| price.0 < 0.5)
    });
    let tree = Node::list([
        Node::require(filters::healthy()),
        Node::require(powered),
        Node::prefer(cheap),
        Node::random(),
    ]);
    let mut board = StatusBoard::new(Tree::new(Signals::Corrected, tree)?);

    let now = Moment::ZERO;
    for (name, price, battery) in [
        ("laptop", 0.0, Some(0.1)),
        ("workstation", 0.2, None),
        ("cloud", 0.9, None),
    ] {
        let mut spec = UpstreamSpec::new(name, "http://127.0.0.1:8080")?;
        spec.extensions.insert(Price(price));
        let id = spec.id.clone();
        board.apply(StatusEvent::Upsert(spec), now);
        let mut report = Report::new();
        if let Some(full) = battery {
            report.extensions.insert(Battery(full));
        }
        board.apply(
            StatusEvent::Report {
                id,
                report,
                sample: None,
            },
            now,
        );
    }

    let facts = Facts::new();
    let pick = |board: &mut StatusBoard| {
        let snapshot = board.publish(now);
        let picked = snapshot
            .pick(&Ask::new(&facts, now, 1), &mut Scratch::default(), &mut ())
            .picked();
        picked.and_then(|upstream| Some(snapshot.spec(upstream)?.id.to_string()))
    };
    // The laptop is cheapest, and nearly empty.
    let first = pick(&mut board);
    println!("first: {first:?}");
    assert_eq!(first.as_deref(), Some("workstation"));

    // Without the workstation nobody is cheap: what is preferred is not required.
    board.apply(StatusEvent::Remove(UpstreamId::new("workstation")?), now);
    let second = pick(&mut board);
    println!("second: {second:?}");
    assert_eq!(second.as_deref(), Some("cloud"));
    Ok(())
}
