package handlers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/watch"
)

const (
	adminAnswerBytesMax = 4 << 20

	// troubledMax bounds the invocations in trouble that are reported.
	troubledMax = 50
)

// Admin is a client of Restate's admin API. If a node of a cluster does not answer, it tries the next. All methods can
// be called concurrently.
type Admin struct {
	at     addresses
	client *http.Client
}

// NewAdmin returns a client of the admin API at url, or of a cluster's admin APIs at several URLs.
func NewAdmin(client *http.Client, urls ...string) *Admin {
	a := &Admin{client: client}
	a.at.set(urls)
	return a
}

// Troubled returns the invocations of Weir's handlers that are paused or keep failing, paused invocations first, at
// most troubledMax.
func (a *Admin) Troubled(ctx context.Context) ([]watch.Invocation, error) {
	var answer struct {
		Rows []struct {
			ID          string `json:"id"`
			Target      string `json:"target"`
			Status      string `json:"status"`
			RetryCount  int    `json:"retry_count"`
			ModifiedAt  string `json:"modified_at"`
			LastFailure string `json:"last_failure"`
		} `json:"rows"`
	}
	query := fmt.Sprintf(`SELECT id, target, status, retry_count, modified_at, last_failure FROM sys_invocation
		WHERE status IN ('paused', 'backing-off') AND target_service_name IN ('%s') ORDER BY status DESC, modified_at LIMIT %d`,
		strings.Join([]string{CronService, RolloutsService, RolloutService, RetirementService, AuditService, OrdersService},
			"', '"), troubledMax)
	if _, err := a.call(ctx, "a query", http.MethodPost, "/query", map[string]string{"query": query},
		&answer); err != nil {
		return nil, err
	}
	var troubled []watch.Invocation
	for _, row := range answer.Rows {
		i := watch.Invocation{
			ID: row.ID, Target: row.Target, Paused: row.Status == "paused", Retries: row.RetryCount,
			Failure: firstLine(row.LastFailure),
		}
		if at, err := time.Parse(time.RFC3339Nano, row.ModifiedAt); err == nil {
			i.SinceMs = at.UnixMilli()
		}
		troubled = append(troubled, i)
	}
	return troubled, nil
}

// call makes a request; what describes it in errors. Every status except 2xx is an error. The request can reach two
// nodes, so it must be harmless to repeat.
func (a *Admin) call(ctx context.Context, what, method, path string, in, out any) (status int, err error) {
	var body []byte
	if in != nil {
		if body, err = json.Marshal(in); err != nil {
			return 0, err
		}
	}
	var text []byte
	err = a.at.inTurn(ctx, func(ctx context.Context, i int) (bool, error) {
		status, text, err = a.once(ctx, method, a.at.urls[i]+path, body)
		return err == nil && status/100 != 5, err
	})
	switch {
	case err != nil:
		return 0, err
	case status/100 != 2:
		return 0, &adminRefusal{what, status, string(text)}
	}
	if out == nil {
		return status, nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return 0, fmt.Errorf("read the answer of Restate's admin API: %w", err)
	}
	return status, nil
}

// adminRefusal is a response of Restate's admin API with a status that is not 2xx.
type adminRefusal struct {
	what   string
	status int
	text   string
}

// discovery reports whether Restate refused because an endpoint does not answer, or does not serve handlers.
func (e *adminRefusal) discovery() bool {
	var answer struct {
		Code string `json:"restate_code"`
	}
	return json.Unmarshal([]byte(e.text), &answer) == nil && strings.HasPrefix(answer.Code, "META")
}

func (e *adminRefusal) Error() string {
	return fmt.Sprintf("restate's admin API refused %s: %d %s: %.500s", e.what, e.status, http.StatusText(e.status),
		e.text)
}

func (a *Admin) once(ctx context.Context, method, url string, body []byte) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, fmt.Errorf("call Restate's admin API: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	res, err := a.client.Do(req)
	if err != nil {
		return 0, nil, fmt.Errorf("%w: Restate's admin API does not answer (is restate-server running? see "+
			"--restate-admin): %w", controlplane.ErrUnavailable, err)
	}
	defer func() { _ = res.Body.Close() }()
	if answer, err = io.ReadAll(io.LimitReader(res.Body, adminAnswerBytesMax)); err != nil {
		return 0, nil, fmt.Errorf("%w: read the answer of Restate's admin API: %w", controlplane.ErrUnavailable, err)
	}
	return res.StatusCode, answer, nil
}
