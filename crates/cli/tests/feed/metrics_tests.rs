use super::*;

#[test]
fn the_lag_is_that_of_the_list_that_is_behind() {
    let metrics = Metrics::default();
    metrics.has_read(Record::Apps, 90_000);
    metrics.has_read(Record::Services, 40_000);
    assert_eq!(metrics.lag_seconds(100_999), 60);
    assert_eq!(metrics.lag_seconds(39_000), 0);
    metrics.has_read(Record::Services, 95_000);
    assert_eq!(metrics.lag_seconds(100_999), 10);
}

#[test]
fn the_text_is_that_of_prometheus_whatever_the_platform_names() {
    let metrics = Metrics::default();
    metrics.count("STARTED", "started");
    metrics.count("STARTED", "started");
    metrics.count("a\"b\\c\nd", "ignored");
    metrics.has_read(Record::Apps, 1_000);
    let text = metrics.text(5_000);
    let values: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(
        values,
        [
            "sampler_feed_events_total{kind=\"STARTED\",outcome=\"started\"} 2",
            "sampler_feed_events_total{kind=\"a\\\"b\\\\c\\nd\",outcome=\"ignored\"} 1",
            "sampler_feed_lag_seconds 4",
        ]
    );
}
