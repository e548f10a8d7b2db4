package console

import (
	"strings"
	"testing"
	"time"
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
