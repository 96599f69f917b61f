from unspool.serve.metrics import Metrics, RequestRecord


def test_counters_and_gauges_as_prometheus_reads_them():
    metrics = Metrics()
    metrics.add("tokens", 3)
    metrics.add("tokens", 4)
    metrics.add("requests", path="/x", status="200")
    assert metrics.text({"waiting": 2}).splitlines() == [
        "# TYPE unspool_requests_total counter",
        'unspool_requests_total{path="/x",status="200"} 1',
        "# TYPE unspool_tokens_total counter",
        "unspool_tokens_total{} 7",
        "# TYPE unspool_waiting gauge",
        "unspool_waiting 2",
    ]


def test_a_histogram_counts_values_up_to_each_bound():
    metrics = Metrics()
    for value in (0.001, 0.3, 0.3, 1000):
        metrics.observe("queue_seconds", value, model="m")
    lines = metrics.text({}).splitlines()
    assert lines[0] == "# TYPE unspool_queue_seconds histogram"
    counts = {line.split()[0]: line.split()[1] for line in lines[1:]}
    assert counts['unspool_queue_seconds_bucket{model="m",le="0.005"}'] == "1"
    assert counts['unspool_queue_seconds_bucket{model="m",le="0.25"}'] == "1"
    assert counts['unspool_queue_seconds_bucket{model="m",le="0.5"}'] == "3"
    assert counts['unspool_queue_seconds_bucket{model="m",le="+Inf"}'] == "4"
    assert counts['unspool_queue_seconds_count{model="m"}'] == "4"
    assert counts['unspool_queue_seconds_sum{model="m"}'] == "1000.6"


def test_labels_are_escaped():
    metrics = Metrics()
    metrics.add("requests", model='a"b\\c')
    assert 'unspool_requests_total{model="a\\"b\\\\c"} 1' in metrics.text({})


def test_tokens_of_a_request_are_counted_with_their_gaps():
    metrics, record = Metrics(), RequestRecord(model="m")
    for sample in (0, 1, 0, 1):
        record.count_tokens(metrics, (0, sample), 2)
    text = metrics.text({})
    assert record.generated_tokens == 8
    assert 'unspool_time_to_first_token_seconds_count{model="m"} 1' in text
    assert 'unspool_time_between_tokens_seconds_count{model="m"} 2' in text
