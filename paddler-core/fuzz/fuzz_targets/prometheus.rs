//! Does any metrics page make the parser panic, lose a line, or make a reader believe what cannot be?

#![no_main]

use libfuzzer_sys::fuzz_target;
use paddler_core::source::llamacpp;
use paddler_core::source::prometheus::{Selector, samples};
use paddler_core::source::vllm::{self, VllmNames};
use paddler_core::status::Report;

fuzz_target!(|page: &[u8]| {
    let mut on_page = samples(page);
    let mut found = 0;
    for sample in on_page.by_ref() {
        found += 1;
        for label in sample.labels {
            assert!(sample.label(label.name).is_some());
        }
        assert!(Selector::new(sample.name).matches(&sample));
    }
    assert!(found + on_page.malformed() <= page.split(|byte| *byte == b'\n').count());

    let mut report = Report::new();
    llamacpp::read_metrics(200, page, &mut report);
    believable(&report);
    let mut report = Report::new();
    vllm::read_metrics(200, page, &VllmNames::default(), &mut report);
    believable(&report);
});

fn believable(report: &Report) {
    assert!(
        report
            .running
            .max(report.waiting)
            .is_none_or(|count| count <= 1 << 31)
    );
    assert!(
        report
            .kv_cache_usage
            .is_none_or(|usage| (0.0..=1.0).contains(&usage))
    );
}
