package console

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/heartbeat"
)

// Each pair of regions has its figure, coloured when late, and words where none measured it.
func TestPairsOfRegions(t *testing.T) {
	w := start(t, false)
	w.set(func() {
		w.fleet = populous(3, 1, time.Now())
		w.fleet.Nodes[0].Health.Relay.LagP99Ms = map[string]int64{"region-01": 900, "region-02": 12_000}
		w.fleet.Nodes[1].Health.Relay.LagP99Ms = map[string]int64{"region-00": 40_000}
	})
	body := w.as("viewer").get("/console/").body
	for _, words := range []string{
		`<th scope="row">region-00</th><td class="same"></td><td class="ok">0.9</td><td class="late">12 <span class="hid">late</span></td>`,
		`<th scope="row">region-01</th><td class="bad">40 <span`, "not measured</span>",
	} {
		if !strings.Contains(body, words) {
			t.Errorf("it does not say %q:\n%s", words, body)
		}
	}
}

// Nodes with arbitrary region names do not fill the page: it has the regions with the most nodes, and shows that there
// are more.
func TestPairsOfTooManyRegions(t *testing.T) {
	w := start(t, false)
	w.set(func() {
		w.fleet = populous(3, 2, time.Now())
		for i := range 20 {
			strange := w.fleet.Nodes[0]
			relay := *strange.Health.Relay
			relay.LagP99Ms = make(map[string]int64)
			for j := range heartbeat.RegionsMax {
				relay.LagP99Ms[fmt.Sprint("<i>", i, "-", j)] = 1
			}
			strange.NodeID, strange.Region = fmt.Sprint("strange-", i), fmt.Sprint("<script>alert(", i, ")</script>")
			strange.Build, strange.Health.Relay = "<script>alert(1)</script>", &relay
			w.fleet.Nodes = append(w.fleet.Nodes, strange)
		}
	})
	body := w.as("viewer").get("/console/").body
	if strings.Contains(body, "<script>alert") || strings.Contains(body, "<i>") {
		t.Error("a region's name is a script")
	}
	if n := strings.Count(body, `<th scope="row">`); n != pairRegionsMax || !strings.Contains(body, `<th scope="row">region-02</th>`) {
		t.Errorf("%d rows, want %d, and one of region-02", n, pairRegionsMax)
	}
	if want := "These are the 64 regions with the most nodes and pairs."; !strings.Contains(body, want) {
		t.Errorf("it does not say %q", want)
	}
}
