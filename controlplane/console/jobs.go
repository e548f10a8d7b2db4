package console

import (
	"context"
	"net/http"

	"github.com/weirhq/weir/controlplane/internal/apiclient"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// jobsView has the durable jobs. If the status of a job cannot be read, the page still shows the others.
type jobsView struct {
	Cleanup    *cleanupView
	Problem    string // why the cleanup's status cannot be read
	Retirement retirementView
}

// cleanupView is the cleanup with its history drawn, oldest run first.
type cleanupView struct {
	*controlv1.CleanupStatus
	Bars []bar
	Most int64 // rows of the highest bar
}

// bar is a run on a drawing that is 100 high.
type bar struct {
	X, Height int64
	Width     int64
	Failed    bool
	Run       *controlv1.CleanupRunRecord
}

func (c jobPages) jobsPage(w http.ResponseWriter, r *http.Request, v *viewer) {
	c.showJobs(w, r, v, http.StatusOK, "")
}

func (c jobPages) showJobs(w http.ResponseWriter, r *http.Request, v *viewer, code int, problem string) {
	var page jobsView
	if found, err := apiclient.Ask(v.ctx, c.backend.Control.CleanupStatus, &controlv1.CleanupStatusRequest{}); err != nil {
		page.Problem = apiclient.Words(err)
	} else {
		page.Cleanup = describeCleanup(found.GetStatus())
	}
	page.Retirement = c.retirement(v.ctx)
	c.renderWith(w, r, v, code, "jobs", "Jobs", problem, page)
}

func describeCleanup(s *controlv1.CleanupStatus) *cleanupView {
	v := &cleanupView{CleanupStatus: s}
	runs := s.GetHistory()
	for _, run := range runs {
		v.Most = max(v.Most, run.GetRowsDeleted())
	}
	const width, high = 600, 90
	step := int64(width / max(len(runs), 20))
	for i := range runs {
		run := runs[len(runs)-1-i]
		height := run.GetRowsDeleted() * high / max(1, v.Most)
		if run.GetError() != "" {
			height = high
		}
		v.Bars = append(v.Bars, bar{X: int64(i) * step, Width: max(1, step-2), Height: max(2, height),
			Failed: run.GetError() != "", Run: run})
	}
	return v
}

// Y returns the top of the bar on a drawing that is 100 high.
func (b bar) Y() int64 { return 100 - b.Height }

func (c jobPages) operateCleanup(w http.ResponseWriter, r *http.Request, v *viewer) {
	actor, reason := c.by(w, r, v)
	c.operate(w, r, v, "cleanup", map[string]order{
		"run":    asking(c.backend.Control.CleanupRun, &controlv1.CleanupRunRequest{Actor: actor, Reason: reason}),
		"pause":  asking(c.backend.Control.CleanupPause, &controlv1.CleanupPauseRequest{Actor: actor, Reason: reason}),
		"resume": asking(c.backend.Control.CleanupResume, &controlv1.CleanupResumeRequest{Actor: actor, Reason: reason}),
	})
}

// order is the call that a form makes.
type order func(context.Context) error

// asking returns an order that makes an RPC and ignores its response.
func asking[Q, A any](rpc apiclient.RPC[Q, A], msg *Q) order {
	return func(ctx context.Context) error {
		_, err := apiclient.Ask(ctx, rpc, msg)
		return err
	}
}

// operate executes the order of a job's form.
func (c jobPages) operate(w http.ResponseWriter, r *http.Request, v *viewer, job string, orders map[string]order) {
	do := r.PostForm.Get("do")
	change, ok := orders[do]
	if !ok {
		c.showJobs(w, r, v, http.StatusBadRequest, "The "+job+" has no such action.")
		return
	}
	if err := change(v.ctx); err != nil {
		c.showJobs(w, r, v, status(err), apiclient.Words(err))
		return
	}
	done(w, r, "/console/jobs", job+"."+do, nil)
}
