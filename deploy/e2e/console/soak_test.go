package console

import (
	"bufio"
	"cmp"
	"fmt"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Pages stay live for an hour without growing memory, with 1,000 nodes, 20 regions and 10,000 overrides. With
// WEIR_SOAK=1 every figure changes each second for an hour. Otherwise the test takes some seconds: each page is left
// and visited again and again, which each time opens its stream, fetches it and draws its charts again.
func TestSoakOfLivePages(t *testing.T) {
	every, samples, stirs := time.Duration(0), 12, 2
	if os.Getenv("WEIR_SOAK") != "" {
		every, samples, stirs = 30*time.Second, 120, 0
	}
	url := serve(t, "large")
	b := browse(t)
	s := &soak{t: t, b: b, pages: make(map[string]*watched), series: make(map[string][]float64)}
	for name, path := range largePages {
		s.pages[name] = &watched{session: b.open(url + path), changed: time.Now()}
	}
	// it is drawn from the second figure on
	b.until(s.pages["fleet"].session, `document.querySelector("#chart .uplot") !== null`)
	began := time.Now()
	tick := time.NewTicker(max(every, time.Millisecond))
	defer tick.Stop()
	for n := range samples {
		for range stirs {
			for _, p := range s.pages {
				s.stir(p)
			}
		}
		<-tick.C
		s.sample()
		t.Logf("%v %s", time.Since(began).Round(time.Second), s.line(n))
	}
	s.judge()
}

// soak holds the measurements of pages that stay open, and of the server.
type soak struct {
	t      *testing.T
	b      *devtools
	pages  map[string]*watched
	series map[string][]float64 // by figure, a value for each sample
}

// watched is an open page.
type watched struct {
	session string
	text    string    // its visible text
	changed time.Time // when that was last something new
	changes int
}

// A value counts as grown if it exceeds its bound here and a tenth of its start, because figures scatter by so much.
var slack = map[string]float64{"heap_mb": 0.5, "nodes": 200, "listeners": 5, "documents": 0.5, "server_heap_mb": 2, "server_own_mb": 16, "browser_own_mb": 32, "goroutines": 10}

// stalled is how long a page may show the same figures. They change every few seconds.
const stalled = 90 * time.Second

// stir hides a page and shows it again, and waits until the page has fetched itself.
func (s *soak) stir(p *watched) {
	s.t.Helper()
	if err := s.b.ask(p.session, `(async () => {
		performance.clearResourceTimings();
		document.dispatchEvent(new Event("visibilitychange"));
		while (!performance.getEntriesByType("resource").some((e) => e.initiatorType === "fetch")) await new Promise((go) => setTimeout(go, 5));
	})()`, nil); err != nil {
		s.t.Fatal(err)
	}
}

// sample measures everything once, without garbage.
func (s *soak) sample() {
	s.t.Helper()
	for name, p := range s.pages {
		s.alive(name, p)
		found := s.metricsAtRest(p)
		s.put(name+" heap_mb", found["JSHeapUsedSize"]/(1<<20))
		s.put(name+" nodes", found["Nodes"]) // includes nodes and listeners that are on no page any more
		s.put(name+" listeners", found["JSEventListeners"])
		s.put(name+" documents", found["Documents"])
	}
	var browser struct{ ProcessInfo []struct{ ID int } }
	s.b.do("", "SystemInfo.getProcessInfo", nil, &browser)
	var pids []int
	for _, p := range browser.ProcessInfo {
		pids = append(pids, p.ID)
	}
	s.put("browser_own_mb", own(pids...))
	s.put("server_heap_mb", heapAtRest())
	s.put("server_own_mb", own(os.Getpid()))
	s.put("goroutines", float64(runtime.NumGoroutine()))
}

// letGo bounds how long a page may hold the document that it has fetched itself into.
const letGo = 10 * time.Second

// metricsAtRest returns the metrics of a page without garbage. A page has a second document while it compares itself
// with a fetched page: metricsAtRest repeats the measurement until there is none. A document that is never released is
// measured like all else.
func (s *soak) metricsAtRest(p *watched) map[string]float64 {
	s.t.Helper()
	for deadline := time.Now().Add(letGo); ; {
		for range 2 { // objects that finalizers release are the next collection's garbage
			s.b.do(p.session, "HeapProfiler.collectGarbage", nil, nil)
		}
		var found struct {
			Metrics []struct {
				Name  string
				Value float64
			}
		}
		s.b.do(p.session, "Performance.getMetrics", nil, &found)
		metrics := make(map[string]float64, len(found.Metrics))
		for _, m := range found.Metrics {
			metrics[m.Name] = m.Value
		}
		if metrics["Documents"] <= 1 || time.Now().After(deadline) {
			return metrics
		}
	}
}

// heapAtRest returns the heap that the server keeps, in MB: the smallest heap after several collections. A single
// collection also counts answers that are being written and recent allocations, which were seen to be twice as much as
// the kept heap.
func heapAtRest() (mb float64) {
	mb = math.Inf(1)
	for range 10 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		mb = min(mb, float64(m.HeapAlloc)/(1<<20))
	}
	return mb
}

func (s *soak) put(figure string, v float64) { s.series[figure] = append(s.series[figure], v) }

// alive checks that a page is marked as live, and that its figures change.
func (s *soak) alive(name string, p *watched) {
	s.t.Helper()
	s.b.until(p.session, `document.getElementById("link").textContent === "live"`)
	var text string
	if err := s.b.ask(p.session, `document.querySelector("main").innerText`, &text); err != nil {
		s.t.Fatal(err)
	}
	if text != p.text {
		p.text, p.changed = text, time.Now()
		p.changes++
	}
	if still := time.Since(p.changed); still > stalled {
		s.t.Fatalf("%s has shown the same for %v", name, still)
	}
}

// judge compares the end with the time after a quarter of it, by when histories that have
// a bound (the fleet's is a quarter of an hour) are full.
func (s *soak) judge() {
	s.t.Helper()
	for name, p := range s.pages {
		if p.changes < 2 {
			s.t.Errorf("%s never changed", name)
		}
	}
	for _, figure := range slices.Sorted(maps.Keys(s.series)) {
		early, late, grew := trend(s.series[figure], slack[figure[strings.LastIndexByte(figure, ' ')+1:]])
		s.t.Logf("%-24s %10.1f %10.1f", figure, early, late)
		if grew {
			s.t.Errorf("%s grows: %.1f, then %.1f", figure, early, late)
		}
	}
}

// trend returns the median of the sixth of the values that begins after a quarter of them, the median of the last
// sixth, and whether the latter is larger by more than a tenth and slack.
func trend(values []float64, slack float64) (early, late float64, grew bool) {
	n := len(values)
	early, late = median(values[n/4:n/4+n/6]), median(values[n-n/6:])
	return early, late, late > early*1.1+slack
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// line returns the newest sample.
func (s *soak) line(n int) string {
	var b strings.Builder
	for _, figure := range slices.SortedFunc(maps.Keys(s.series), func(a, b string) int {
		return cmp.Or(cmp.Compare(strings.Count(a, " "), strings.Count(b, " ")), cmp.Compare(a, b))
	}) {
		if !strings.HasSuffix(figure, "documents") {
			fmt.Fprintf(&b, "%s=%.1f ", figure, s.series[figure][n])
		}
	}
	return b.String()
}

// own returns the resident memory of processes in MB, without files, much of which they share. It returns 0 if it is
// not available.
func own(pids ...int) (mb float64) {
	for _, pid := range pids {
		f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			continue // it has ended, or this is no Linux
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if kb, ok := strings.CutPrefix(lines.Text(), "RssAnon:"); ok {
				n, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(kb), " kB"), 64)
				mb += n / 1024
			}
		}
		_ = f.Close()
	}
	return mb
}

// The trend is judged. Noise around it, and memory that fills up at first, do not matter.
func TestATrendIsFound(t *testing.T) {
	for _, tc := range []struct {
		name string
		at   func(i float64) float64
		grew bool
	}{
		{"flat", func(float64) float64 { return 20 }, false},
		{"noise", func(i float64) float64 { return 20 + float64(int(i)*7919%30)/10 }, false},
		{"a history that fills up in a quarter", func(i float64) float64 { return min(20, 5+i/2) }, false},
		{"a slow leak", func(i float64) float64 { return 20 + i/10 }, true},
		{"a leak that begins in the middle", func(i float64) float64 { return 20 + max(0, i-60)/5 }, true},
	} {
		var values []float64
		for i := range 120 {
			values = append(values, tc.at(float64(i)))
		}
		if early, late, grew := trend(values, 1); grew != tc.grew {
			t.Errorf("%s: %v, then %v: grew is %v", tc.name, early, late, grew)
		}
	}
}
