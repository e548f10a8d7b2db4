package handlers

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	restate "github.com/restatedev/sdk-go"
)

// A large state is sent to the handlers that read it, and to no other handler. An invocation that made the state large
// can be replayed.
func TestALargeStateIsSentToItsReadersAlone(t *testing.T) {
	t.Parallel()
	document, err := json.Marshal(strings.Repeat("x", 200<<10))
	if err != nil {
		t.Fatal(err)
	}
	var attempts atomic.Int32
	c := newCluster(t, Options{}, func(*stepper) map[string]Job {
		return map[string]Job{"large": {Run: func(ctx restate.ObjectContext) (Report, error) {
			before, terminal := restate.Get[json.RawMessage](ctx, documentKey)
			if terminal != nil {
				return Report{}, terminal
			}
			restate.Set(ctx, documentKey, json.RawMessage(document))
			if _, err := restate.Run(ctx, func(restate.RunContext) (bool, error) {
				if attempts.Add(1)%2 == 1 {
					return false, errors.New("each first attempt fails")
				}
				return true, nil
			}); err != nil {
				return Report{}, err
			}
			return Report{Readings: map[string]int64{"bytes": int64(len(before))}}, nil
		}}}
	})
	for _, bytes := range []int{0, len(document)} {
		run, err := c.client.TriggerNow(t.Context(), "large", operator)
		if err != nil || run.Report.Readings["bytes"] != int64(bytes) {
			t.Fatalf("%+v, want %d bytes: %v", run, bytes, err)
		}
	}
	if _, err := c.client.Pause(t.Context(), "large", operator); err != nil {
		t.Fatal(err)
	}
	for handler, want := range map[string]int{"TriggerNow": 1, "Pause": 0} {
		var rows []struct{ N int }
		c.admin(http.MethodPost, "/query", map[string]string{"query": `SELECT count(j.id) AS n FROM sys_journal j
			JOIN sys_invocation i ON i.id = j.id WHERE i.target_handler_name = '` + handler + `'
			AND j.entry_type = 'Command: GetLazyState' AND j.entry_json LIKE '%` + documentKey + `%'`}, &struct{ Rows any }{&rows})
		if len(rows) != 1 || rows[0].N != want {
			t.Errorf("%s asked for the large state %v times, want %d", handler, rows, want)
		}
	}
}
