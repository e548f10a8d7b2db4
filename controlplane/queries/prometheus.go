package queries

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/controlplane"
)

const (
	prometheusTimeout  = 5 * time.Second
	prometheusBytesMax = 1 << 20
)

// PrometheusClient calls the HTTP API of a Prometheus, or of a server with the same API. All methods are safe for
// concurrent use.
type PrometheusClient struct {
	client *http.Client
	url    string
}

// NewPrometheusClient returns a client of the server at url.
func NewPrometheusClient(client *http.Client, url string) *PrometheusClient {
	return &PrometheusClient{client: client, url: strings.TrimRight(url, "/")}
}

// Query makes an instant query, now. Errors wrap controlplane.ErrInvalid where the query is at fault and
// controlplane.ErrUnavailable where the server is.
func (p *PrometheusClient) Query(ctx context.Context, query string) ([]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, prometheusTimeout)
	defer cancel()
	form := url.Values{"query": {query}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/api/v1/query", strings.NewReader(form.Encode()))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", controlplane.ErrInvalid, err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := p.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w: Prometheus does not answer: %w", controlplane.ErrUnavailable, err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, prometheusBytesMax+1))
	if err != nil || len(body) > prometheusBytesMax {
		return nil, fmt.Errorf("%w: Prometheus's answer is larger than %d bytes or was cut off: %w",
			controlplane.ErrUnavailable,
			prometheusBytesMax, err)
	}
	return parseAnswer(answer.StatusCode, body)
}

// parseAnswer reads an answer of the instant-query API.
func parseAnswer(status int, body []byte) ([]float64, error) {
	var a struct {
		Status    string `json:"status"`
		ErrorType string `json:"errorType"`
		Error     string `json:"error"`
		Data      struct {
			ResultType string          `json:"resultType"`
			Result     json.RawMessage `json:"result"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &a); err != nil {
		return nil, fmt.Errorf("%w: Prometheus answered status %d with no JSON of its API", controlplane.ErrUnavailable,
			status)
	}
	if a.Status != "success" {
		kind := controlplane.ErrUnavailable
		if a.ErrorType == "bad_data" {
			kind = controlplane.ErrInvalid
		}
		return nil, fmt.Errorf("%w: Prometheus: %s: %s", kind, a.ErrorType, a.Error)
	}
	switch a.Data.ResultType {
	case "scalar":
		var s instant
		if err := json.Unmarshal(a.Data.Result, &s); err != nil {
			return nil, fmt.Errorf("%w: Prometheus's scalar: %w", controlplane.ErrUnavailable, err)
		}
		return []float64{s.value}, nil
	case "vector":
		var series []struct {
			Value instant `json:"value"`
		}
		if err := json.Unmarshal(a.Data.Result, &series); err != nil {
			return nil, fmt.Errorf("%w: Prometheus's vector: %w", controlplane.ErrUnavailable, err)
		}
		var values []float64
		for _, s := range series {
			values = append(values, s.Value.value)
		}
		return values, nil
	}
	return nil, fmt.Errorf("%w: the query returns a %s (want a scalar or a vector)", controlplane.ErrInvalid,
		a.Data.ResultType)
}

// instant is [time, "value"].
type instant struct{ value float64 }

var errSample = errors.New(`not [time, "value"]`)

// UnmarshalJSON implements json.Unmarshaler.
func (s *instant) UnmarshalJSON(b []byte) (err error) {
	var pair []json.RawMessage
	var text string
	if json.Unmarshal(b, &pair) != nil || len(pair) != 2 || json.Unmarshal(pair[1], &text) != nil {
		return errSample
	}
	if s.value, err = strconv.ParseFloat(text, 64); err != nil {
		return errSample
	}
	return nil
}
