package main

import (
	"github.com/prometheus/client_golang/prometheus"
)

// collected is a metric whose values are read when Prometheus asks.
type collected struct {
	desc *prometheus.Desc
	read func(ch chan<- prometheus.Metric)
}

// Describe tells what Collect sends.
func (c *collected) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect sends the values.
func (c *collected) Collect(ch chan<- prometheus.Metric) { c.read(ch) }

// collect adds a metric that read reads.
func (m *metrics) collect(name, help string, labels []string, read func(desc *prometheus.Desc, ch chan<- prometheus.Metric)) {
	desc := prometheus.NewDesc("sallyport_"+name, help, labels, nil)
	m.registry.MustRegister(&collected{desc: desc, read: func(ch chan<- prometheus.Metric) { read(desc, ch) }})
}

// labelled adds a metric with one label. The function calls its argument with
// each label's value and what it has.
func (m *metrics) labelled(kind prometheus.ValueType, name, help, label string, f func(send func(value string, v float64))) {
	m.collect(name, help, []string{label}, func(desc *prometheus.Desc, ch chan<- prometheus.Metric) {
		f(func(value string, v float64) { ch <- prometheus.MustNewConstMetric(desc, kind, v, value) })
	})
}

// summed adds a metric of how often something was done and how long it took in
// all, in seconds.
func (m *metrics) summed(name, help string, f func() (n uint64, sum float64)) {
	m.collect(name, help, nil, func(desc *prometheus.Desc, ch chan<- prometheus.Metric) {
		n, sum := f()
		ch <- prometheus.MustNewConstSummary(desc, n, sum, nil)
	})
}
