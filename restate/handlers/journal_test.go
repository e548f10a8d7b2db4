package handlers

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane/queries"
	"github.com/weirhq/weir/controlplane/retire"
	"github.com/weirhq/weir/controlplane/rollout"
	"github.com/weirhq/weir/controlplane/store"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
)

// journalForms lists the entries of each handler's journals, in order: steps with the kind of their results, reads and
// writes of state, and messages. They must equal the journals of earlier builds.
var journalForms = func() map[string]string {
	const (
		newer   = `look for a newer state=string`
		now     = `now=number`
		save    = `save N=string`
		look    = `look at nodes=object(, ask Prometheus=list){0,2}`
		effects = `(renew trials=object, )?` + look + `(, read the tuning in force=list)?|try one/try/\w*=object|` +
			`write one/apply/\w*=object|write one/revert/\w*=object|end trials=list`
		next  = `, send WeirRollout/Step, set rollout`
		audit = `, send WeirAudit/Write`
	)
	return map[string]string{
		"WeirRollouts/Start": `get rollouts, read which rollouts began or wrote=list, list regions=list, ` +
			`check the plan=string, call WeirRollout/Begin, set rollouts`,
		"WeirRollouts/TakeBack": `get rollouts, read which rollouts began or wrote=list, call WeirRollout/TakeBack, set rollouts`,
		"WeirRollouts/Ended":    `get rollouts, set rollouts`,
		"WeirRollout/Begin": `get rollout, ` + newer + `, look whether the id was used=string, ` + now + `, ` + save + next +
			audit,
		"WeirRollout/Step": `get rollout(, get rollout, ` + newer + `, ` + now + `(, (` + effects + `))?(, ` + save + `)?(` +
			next + `|, set rollout, send WeirRollouts/Ended)(` + audit + `)?)?`,
		"WeirRollout/Operate": `get rollout, ` + newer + `, ` + now + `, look who may still approve=object, ` + save + next +
			audit,
		"WeirRollout/TakeBack": `get rollout, ` + newer + `, read the tuning in force=list, ` + now + `, ` + save + next + audit,
		"WeirRetirement/Start": `get retirement, now=number, look=object, save N=string, send WeirRetirement/Step, ` +
			`set retirement, send WeirAudit/Write`,
		"WeirRetirement/Step": `get retirement(, now=number, (look=object|drop ratelimit_blocklist_retired_N_N=object)` +
			`(, delete expired rows=object|, rename ratelimit_blocklist=object)?, save N=string` +
			`(, send WeirRetirement/Step)?, set retirement(, send WeirAudit/Write)?)?`,
		"WeirRetirement/Approve": `get retirement, now=number, look=object, save N=string, send WeirRetirement/Step, ` +
			`set retirement, send WeirAudit/Write`,
		"WeirCron/Start": `get state, now=number, send WeirCron/Tick, set state`,
		"WeirCron/Tick": `get state, now=number, send WeirCron/Tick, set state, plan=object(, drop partition N=object)+` +
			`(, delete batch N=object)+, add partitions=object, delete dead nodes=number, finished=number, set state`,
		"WeirCron/Pause": `get state, look for a newer order=object, now=number, signal, save the order=bool, set state, ` +
			`send WeirAudit/Write`,
		"WeirAudit/Write": `insert=list`,
	}
}()

// A run that is under way when another build takes over is replayed from its journal. So each handler's journal must
// have the same entries as in earlier builds: the same names, in the same order, with results of the same kind.
func TestJournalsHaveTheEntriesOfEarlierBuilds(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testJournalsHaveTheEntriesOfEarlierBuilds)
}

func testJournalsHaveTheEntriesOfEarlierBuilds(t *testing.T) {
	t.Parallel()
	cl, db := newJournalCluster(t)
	v := newVillage(t, db)
	rollOutAndBack(t, db, RolloutClient{cl.client})
	v.stop()
	v.done.Wait()
	if _, err := db.ExecContext(t.Context(), "DELETE FROM ratelimit_nodes"); err != nil { // the next fleet has other regions
		t.Fatal(err)
	}
	newHamlet(t, db)
	retireTable(t, RetirementClient{cl.client})
	if _, err := cl.client.Start(t.Context(), CleanupJob, time.Hour); err != nil {
		t.Fatal(err)
	}
	cl.lastRun(1)
	if _, err := cl.client.Pause(t.Context(), CleanupJob, operator); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{} // the journals of each handler
	await.NoError(t, "a journal of each handler", func() error {
		for _, j := range cl.journals() {
			if form, known := journalForms[j.handler]; known && !regexp.MustCompile("^"+form+"$").MatchString(j.entries) {
				// Restate lists invocations and journals separately, so a journal may still lack a result.
				return fmt.Errorf("%s has the journal\n\t%s, want\n\t%s", j.handler, j.entries, form)
			}
			all[j.handler] += j.entries + "\n"
		}
		for handler, form := range journalForms {
			for _, step := range stepsOf(form) {
				if !strings.Contains(all[handler], step) {
					return fmt.Errorf("no journal of %s has %q", handler, step)
				}
			}
		}
		return nil
	})
}

// stepsOf returns the names of steps in a form, without the regions in them.
func stepsOf(form string) (names []string) {
	form = strings.ReplaceAll(form, `\w*`, "")
	for _, step := range regexp.MustCompile(`([a-zA-Z_/ ]+)=\w+`).FindAllStringSubmatch(form, -1) {
		names = append(names, strings.TrimSpace(step[1]))
	}
	return names
}

// constantly is a Prometheus in which every query has the same value.
type constantly float64

func (c constantly) Query(context.Context, string) ([]float64, error) {
	return []float64{float64(c)}, nil
}

// newJournalCluster returns a cluster with all handlers.
func newJournalCluster(t *testing.T) (*cluster, *sql.DB) {
	t.Helper()
	db, _ := rows(t)
	s := store.New(db)
	o := retirementOptions(s)
	o.Rollouts = o.Rollouts.WithPrometheus(constantly(1))
	o.Approvers, o.Saves = &endedApprovers{ended: map[string]string{}}, s
	if err := block(t.Context(), db, "old", 5, -time.Hour); err != nil {
		t.Fatal(err)
	}
	return newCluster(t, o, func(s *stepper) map[string]Job {
		return map[string]Job{CleanupJob: cleanupJob(o.Cleanup, s, o.Metrics)}
	}), db
}

func rollOutAndBack(t *testing.T, db *sql.DB, c RolloutClient) {
	t.Helper()
	spec, limit := twoStages(200), 2.0
	spec.Plan.Guardrails.Queries = []queries.Rail{{Name: "errors", Query: "errors", Above: &limit}}
	spec.Plan.Stages[1].Approval = true
	if _, err := c.Start(t.Context(), starting("one", spec)); err != nil {
		t.Fatal(err)
	}
	r := reaches(t, c, "one", "it waits for an approval", in(rollout.Awaiting, 1))
	approval := rollout.Order{Action: rollout.Approve, By: operator, Stage: 2, Asked: r.Asked,
		Evidence: r.Evidence()}
	if _, err := c.Operate(t.Context(), "one", approval); err != nil {
		t.Fatal(err)
	}
	reaches(t, c, "one", "it is done", in(rollout.Done, 1))
	wantUnlocked(t, db, c, "one", rollout.Done)
	if _, err := c.Operate(t.Context(), "one", order(rollout.RollBack)); err != nil {
		t.Fatal(err)
	}
	reaches(t, c, "one", "it is rolled back", in(rollout.RolledBack, 1))
}

func retireTable(t *testing.T, c RetirementClient) {
	t.Helper()
	if _, err := c.Start(t.Context(), retired, briefly(), operator); err != nil {
		t.Fatal(err)
	}
	retires(t, c, "it is empty", at(retire.Awaiting))
	if _, err := c.ApproveRename(t.Context(), retired, shown(t, c, operator)); err != nil {
		t.Fatal(err)
	}
	retires(t, c, "the soak ends", at(retire.AwaitingFinal))
	if _, err := c.ApproveDrop(t.Context(), retired, shown(t, c, operator)); err != nil {
		t.Fatal(err)
	}
	retires(t, c, "the end", at(retire.Dropped))
}

// written is the journal of an ended invocation, in the form of journalForms.
type written struct{ handler, entries string }

// journals returns the journals of all ended invocations that Restate still has.
func (c *cluster) journals() (all []written) {
	c.t.Helper()
	var rows []struct {
		ID      string `json:"id"`
		Handler string `json:"handler"`
		Type    string `json:"entry_type"`
		Name    string `json:"name"`
		Entry   string `json:"entry_json"`
	}
	c.admin(http.MethodPost, "/query", map[string]string{"query": `SELECT j.id, j.entry_type, j.name, j.entry_json,
		CONCAT(i.target_service_name, '/', i.target_handler_name) AS handler
		FROM sys_journal j JOIN sys_invocation i ON i.id = j.id WHERE i.status = 'completed' ORDER BY j.id, j.index`}, &struct{ Rows any }{&rows})
	var id string
	var entries []string
	var steps map[int]int // by completion: the index in entries
	for i, row := range rows {
		if row.ID != id {
			id, entries, steps = row.ID, nil, map[int]int{}
		}
		var entry entryJSON
		if err := json.Unmarshal([]byte(row.Entry), &entry); err != nil {
			c.t.Fatal(err)
		}
		called := entry.Command.Call.Request.Target.VirtualObject
		sent := entry.Command.OneWayCall.Request.Target
		switch row.Type {
		case "Command: Run":
			steps[entry.Command.Run.CompletionID] = len(entries)
			entries = append(entries, regexp.MustCompile(`\d+`).ReplaceAllString(row.Name, "N")+"=")
		case "Notification: Run":
			answer := entry.Notification.Completion.Run
			entries[steps[answer.CompletionID]] += kindOf(answer.Result.Success)
		case "Command: GetEagerState", "Command: GetLazyState":
			entries = append(entries, "get "+entry.Command.GetEagerState.Key+entry.Command.GetLazyState.Key)
		case "Command: SetState":
			entries = append(entries, "set "+entry.Command.SetState.Key)
		case "Command: SendSignal":
			entries = append(entries, "signal")
		case "Command: Call":
			entries = append(entries, "call "+called.Name+"/"+called.Handler)
		case "Command: OneWayCall":
			to := sent.VirtualObject
			if to.Name == "" {
				to = sent.Service
			}
			entries = append(entries, "send "+to.Name+"/"+to.Handler)
		}
		if i+1 == len(rows) || rows[i+1].ID != id {
			all = append(all, written{row.Handler, strings.Join(entries, ", ")})
		}
	}
	return all
}

type target struct{ Name, Handler string }

// entryJSON is an entry as Restate shows it.
type entryJSON struct {
	Command struct {
		Run struct {
			CompletionID int `json:"completion_id"`
		}
		GetEagerState, GetLazyState, SetState struct{ Key string }
		Call, OneWayCall                      struct {
			Request struct {
				Target struct{ VirtualObject, Service target } `json:"invocation_target"`
			}
		}
	}
	Notification struct {
		Completion struct {
			Run struct {
				CompletionID int `json:"completion_id"`
				Result       struct{ Success []int }
			}
		}
	}
}

// kindOf returns the kind of a result in JSON. An empty list may be null.
func kindOf(text []int) string {
	var b []byte
	for _, c := range text {
		b = append(b, byte(c))
	}
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		return err.Error()
	}
	switch v.(type) {
	case string:
		return "string"
	case float64:
		return "number"
	case bool:
		return "bool"
	case map[string]any:
		return "object"
	}
	return "list"
}
