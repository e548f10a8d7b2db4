package console

import (
	"maps"
	"slices"
	"testing"
)

// Pages render in under 200 ms with 1,000 nodes, 20 regions and 10,000 overrides, as
// people see it: from the click to the first paint that has content, and to the page with
// its scripts and its stream. The least and the median of many, for a machine that is busy
// adds to each.
//
//	go test -run '^$' -bench Chromium -benchtime 30x ./deploy/e2e/console
func BenchmarkPagesInChromium(b *testing.B) {
	url := serve(b, "large")
	browser := browse(b)
	// the browser has cached the static files, as for anybody's second page
	page := browser.open(url + "/console/audit")
	for _, name := range slices.Sorted(maps.Keys(everyLargePage)) {
		b.Run(name, func(b *testing.B) {
			browser.t = b
			var answer, paint, load []float64
			for b.Loop() {
				browser.navigate(page, url+everyLargePage[name])
				browser.until(page, `performance.getEntriesByName("first-contentful-paint").length > 0`)
				var took struct{ Answer, Paint, Load float64 }
				if err := browser.ask(page, `(({responseEnd, loadEventEnd}, [{startTime}]) => ({answer: responseEnd, paint: startTime, load: loadEventEnd}))(
					performance.getEntriesByType("navigation")[0], performance.getEntriesByName("first-contentful-paint"))`, &took); err != nil {
					b.Fatal(err)
				}
				answer, paint, load = append(answer, took.Answer), append(paint, took.Paint), append(load, took.Load)
			}
			b.ReportMetric(0, "ns/op") // the run's own time has no meaning
			for unit, values := range map[string][]float64{"ms-answer": answer, "ms-paint": paint, "ms-load": load} {
				b.ReportMetric(median(values), unit)
				b.ReportMetric(slices.Min(values), unit+"-min")
			}
		})
	}
}
