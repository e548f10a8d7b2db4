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
)

const (
	adminAnswerBytesMax = 4 << 20

	// troubledMax bounds how many invocations in trouble are told of.
	troubledMax = 50
)

// Admin calls Restate's admin API. All methods may be called at once.
type Admin struct {
	url    string // without a slash at the end
	client *http.Client
}

// NewAdmin returns a client of the admin API at url.
func NewAdmin(client *http.Client, url string) *Admin {
	return &Admin{url: strings.TrimRight(url, "/"), client: client}
}

// Troubled are the invocations of Weir's handlers that are paused or keep failing, the
// paused ones first; at most troubledMax.
func (a *Admin) Troubled(ctx context.Context) ([]controlplane.Invocation, error) {
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
		strings.Join([]string{CronService, RolloutsService, RolloutService, RetirementService, AuditService}, "', '"), troubledMax)
	if _, err := a.call(ctx, "a query", http.MethodPost, "/query", map[string]string{"query": query}, &answer); err != nil {
		return nil, err
	}
	var troubled []controlplane.Invocation
	for _, row := range answer.Rows {
		i := controlplane.Invocation{
			ID: row.ID, Target: row.Target, Paused: row.Status == "paused", Retries: row.RetryCount, Failure: firstLine(row.LastFailure),
		}
		if at, err := time.Parse(time.RFC3339Nano, row.ModifiedAt); err == nil {
			i.SinceMs = at.UnixMilli()
		}
		troubled = append(troubled, i)
	}
	return troubled, nil
}

// call makes one call, for what. Every answer but 2xx is an error.
func (a *Admin) call(ctx context.Context, what, method, path string, in, out any) (status int, err error) {
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return 0, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, a.url+path, &body)
	if err != nil {
		return 0, fmt.Errorf("call Restate's admin API: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	res, err := a.client.Do(req)
	if err != nil {
		return 0, fmt.Errorf("%w: Restate's admin API does not answer (is restate-server running? see --restate-admin): %w", controlplane.ErrUnavailable, err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, adminAnswerBytesMax))
	if err != nil {
		return 0, fmt.Errorf("%w: read the answer of Restate's admin API: %w", controlplane.ErrUnavailable, err)
	}
	if res.StatusCode/100 != 2 {
		return 0, fmt.Errorf("restate's admin API refused %s: %s: %.500s", what, res.Status, text)
	}
	if err := json.Unmarshal(text, out); err != nil {
		return 0, fmt.Errorf("read the answer of Restate's admin API: %w", err)
	}
	return res.StatusCode, nil
}
