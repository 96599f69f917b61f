from unspool.serve.guard import Metrics


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
