package check

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/weirhq/weir/deploy/local/stack"
	"github.com/weirhq/weir/shared/servers"
)

// published are the metrics of a fleet: by name, by label, the values seen.
type published map[string]map[string]map[string]bool

// scrapeFleet starts everything that is scraped, in two regions that exchange counts, and reads the published metrics.
func scrapeFleet(t *testing.T) published {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	peers := []string{"--relay-peers=ap=127.0.0.1:1", "--relay-peers-listen=127.0.0.1:0"} // for the metrics of peers
	s, err := stack.Start(ctx, stack.Options{Bin: bin, Engine: servers.EngineOf(t), Redis: servers.RedisKindOf(t),
		Data: t.TempDir(), NodesPerRegion: 1, CleanupInterval: time.Second, NodeArgs: peers})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, node := range s.Nodes {
			decide(ctx, t, node.URL())
		}
		seen := make(published)
		for _, node := range s.Nodes {
			seen.scrape(ctx, t, node.AdminURL())
		}
		seen.scrape(ctx, t, s.API())
		// A region's metrics of another region, and the control plane's metrics of both, appear once the regions have
		// exchanged counts.
		if seen["weir_relay_lag_seconds"] != nil && seen["weir_fleet_clock_skew_seconds"] != nil {
			seen.scrapeTrouble(ctx, t, s, tick.C)
			return seen
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the regions have not heard of each other within two minutes")
		}
	}
}

// scrapeTrouble adds the metrics of a Restate with failures, because some series only appear after a failure: it calls
// handlers that are gone.
func (p published) scrapeTrouble(ctx context.Context, t *testing.T, s *stack.Stack, again <-chan time.Time) {
	t.Helper()
	if err := s.Control.Kill(); err != nil {
		t.Fatal(err)
	}
	for {
		p.scrape(ctx, t, s.Restate.FabricURL())
		if p["restate_invoker_invocation_tasks_total"]["status"]["failed"] {
			return
		}
		select {
		case <-again:
		case <-ctx.Done():
			t.Fatal("Restate has not called the dead handlers within two minutes")
		}
	}
}

// decide requests a key that all regions use.
func decide(ctx context.Context, t *testing.T, url string) {
	t.Helper()
	body := strings.NewReader(`{"workspace":"acme","namespace":"api","identifier":"user_42","limit":10,"duration_ms":600000}`)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/weir.v1.RateLimitService/Limit", body)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if answer, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %s %v", url, response.Status, answer, err)
	}
}

func (p published) scrape(ctx context.Context, t *testing.T, url string) {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	families, err := parser.TextToMetricFamilies(strings.NewReader(describedOnce(string(body))))
	if err != nil {
		t.Fatal(err)
	}
	for name, family := range families {
		for _, m := range family.GetMetric() {
			labels := make(map[string]string)
			for _, pair := range m.GetLabel() {
				labels[pair.GetName()] = pair.GetValue()
			}
			p.add(name, labels, "", "")
			if h := m.GetHistogram(); h != nil {
				for _, bucket := range h.GetBucket() {
					p.add(name+"_bucket", labels, "le", fmt.Sprint(bucket.GetUpperBound()))
				}
			}
			for _, q := range m.GetSummary().GetQuantile() {
				p.add(name, labels, "quantile", fmt.Sprint(q.GetQuantile()))
			}
			if m.GetHistogram() != nil || m.GetSummary() != nil {
				p.add(name+"_sum", labels, "", "")
				p.add(name+"_count", labels, "", "")
			}
		}
	}
}

// describedOnce drops repeated comments: Restate writes a metric's for each of its
// databases, which Prometheus takes and this parser does not.
func describedOnce(text string) string {
	var b strings.Builder
	seen := make(map[string]bool)
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") && seen[line] {
			continue
		}
		seen[line] = true
		b.WriteString(line)
	}
	return b.String()
}

// add records a series, with the label that its kind of metric brings, and the labels that Prometheus adds itself.
func (p published) add(name string, labels map[string]string, label, value string) {
	if p[name] == nil {
		p[name] = map[string]map[string]bool{"job": {}, "instance": {}}
	}
	note := func(label, value string) {
		if p[name][label] == nil {
			p[name][label] = make(map[string]bool)
		}
		p[name][label][value] = true
	}
	for label, value := range labels {
		note(label, value)
	}
	if label != "" {
		note(label, value)
	}
}
