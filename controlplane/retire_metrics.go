package controlplane

import "github.com/prometheus/client_golang/prometheus"

// retirementMetrics are those of retirements.
type retirementMetrics struct {
	rowsRetired   prometheus.Counter
	retiring      prometheus.Gauge
	retireWaits   prometheus.Gauge
	retireTrouble prometheus.Gauge
}

func newRetirementMetrics(counter func(name, help string) prometheus.Counter,
	gauge func(name, help string) prometheus.Gauge) retirementMetrics {
	return retirementMetrics{
		rowsRetired: counter("weir_retirement_rows_deleted_total",
			"Expired rows of retired tables deleted by this process."),
		retiring:      gauge("weir_retirement_under_way", "1 while a table is being retired."),
		retireWaits:   gauge("weir_retirement_awaiting_approval", "1 while a retirement waits for a person."),
		retireTrouble: gauge("weir_retirement_trouble", "1 while a step of a retirement fails and is tried again."),
	}
}

// Retirement records how the retirement of a table stands.
func (m *Metrics) Retirement(r *Retirement) {
	m.retiring.Set(oneIf(r.UnderWay()))
	m.retireWaits.Set(oneIf(r.Phase == RetirementAwaiting || r.Phase == RetirementAwaitingFinal))
	m.retireTrouble.Set(oneIf(r.UnderWay() && r.Trouble != ""))
}

func (m *Metrics) retired(rows int64) { m.rowsRetired.Add(float64(rows)) }
