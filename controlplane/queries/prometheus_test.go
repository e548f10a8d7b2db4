package queries

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/controlplane"
)

// The instant-query API, according to its documentation.
func TestPrometheusClient(t *testing.T) {
	status, body := http.StatusOK, ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/prom/api/v1/query" || r.FormValue("query") != `up{a="b&c"}` {
			t.Errorf("%s %q", r.URL, r.FormValue("query"))
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	defer server.Close()
	client := NewPrometheusClient(server.Client(), server.URL+"/prom/")
	for _, c := range []struct {
		status int
		body   string
		want   []float64
		err    error
	}{
		{200, `{"status":"success","data":{"resultType":"scalar","result":[1.5,"2.5"]}}`, []float64{2.5}, nil},
		{200, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"b"},"value":[1,"1"]},{"metric":{},"value":[1,"+Inf"]}]}}`, nil, nil},
		{200, `{"status":"success","data":{"resultType":"vector","result":[]}}`, nil, nil},
		{200, `{"status":"success","data":{"resultType":"matrix","result":[]}}`, nil, controlplane.ErrInvalid},
		{200, `{"status":"success","data":{"resultType":"scalar","result":[1]}}`, nil, controlplane.ErrUnavailable},
		{400, `{"status":"error","errorType":"bad_data","error":"parse error"}`, nil, controlplane.ErrInvalid},
		{503, `{"status":"error","errorType":"timeout","error":"too slow"}`, nil, controlplane.ErrUnavailable},
		{502, `<html>`, nil, controlplane.ErrUnavailable},
		{200, `"` + strings.Repeat("x", prometheusBytesMax) + `"`, nil, controlplane.ErrUnavailable},
	} {
		status, body = c.status, c.body
		got, err := client.Query(t.Context(), `up{a="b&c"}`)
		if !errors.Is(err, c.err) || c.want != nil && !slices.Equal(got, c.want) {
			t.Errorf("%.80s: %v, %v", c.body, got, err)
		}
	}
	server.Close()
	if _, err := client.Query(t.Context(), "up"); !errors.Is(err, controlplane.ErrUnavailable) {
		t.Error(err)
	}
}

func FuzzPrometheusAnswer(f *testing.F) {
	f.Add(200, []byte(`{"status":"success","data":{"resultType":"scalar","result":[1.5,"2.5"]}}`))
	f.Add(400, []byte(`{"status":"error","errorType":"bad_data","error":"x"}`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		values, err := parseAnswer(status, body)
		if err != nil && !errors.Is(err, controlplane.ErrInvalid) && !errors.Is(err, controlplane.ErrUnavailable) {
			t.Fatalf("untyped error %v", err)
		}
		(Rail{Name: "x"}).Worst(values)
	})
}

// The worst element of a vector is compared with the bound, wherever it stands. A value at the bound breaks nothing.
func TestTheWorstElement(t *testing.T) {
	above, below := Rail{Name: "a", Above: new(0.5)}, Rail{Name: "a", Below: new(0.5)}
	for _, c := range []struct {
		rail   Rail
		values []float64
		worst  float64
		broken bool
	}{
		{above, []float64{0.7, 0.1}, 0.7, true}, {above, []float64{0.1, 0.7}, 0.7, true}, {above, []float64{0.5, 0.1}, 0.5, false},
		{below, []float64{0.3, 0.9}, 0.3, true}, {below, []float64{0.9, 0.3}, 0.3, true}, {below, []float64{0.5, 0.9}, 0.5, false},
	} {
		worst, _ := c.rail.Worst(c.values)
		if why := c.rail.Beyond(Value{}, Value{Name: "a", Value: worst}); *worst != c.worst || (why != "") != c.broken {
			t.Errorf("%s, %v: %v, %q", c.rail.Bound(), c.values, *worst, why)
		}
	}
}
