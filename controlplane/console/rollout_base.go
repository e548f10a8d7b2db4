package console

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"

	"github.com/weirhq/weir/controlplane/internal/apiclient"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// base is the tuning in force that a rollout's form begins with and is compared with: the
// fleet's.
type base struct {
	Document string
	Version  int64
	Others   []string // regions whose own tuning is another one
	Seen     string   // the mark of what the form was shown with
	all      string   // every document in force
}

// Mark is of all that is in force: another mark, another tuning somewhere.
func (b base) Mark() string {
	sum := sha256.Sum256([]byte(b.all))
	return hex.EncodeToString(sum[:8])
}

func (c rolloutPages) tuningInForce(v *viewer) (b base, err error) {
	answer, err := apiclient.Ask(v.ctx, c.backend.Rollouts.GetTuning, &controlv1.GetTuningRequest{})
	if err != nil {
		return b, err
	}
	var all strings.Builder
	for i, t := range answer.GetTunings() { // the fleet's first
		all.WriteString(t.GetRegion() + "\x00" + t.GetDocument() + "\x00")
		if i == 0 {
			b.Document, b.Version = t.GetDocument(), t.GetVersion()
		} else if t.GetDocument() != b.Document {
			b.Others = append(b.Others, t.GetRegion())
		}
	}
	b.all = all.String()
	return b, nil
}

// filledIn is the form as it was sent, beside what is in force by now. When that cannot be
// told, it has answered.
func (c rolloutPages) filledIn(w http.ResponseWriter, r *http.Request, v *viewer) (form planForm, ok bool) {
	inForce, err := c.tuningInForce(v)
	if err != nil {
		c.broken(w, r, v, err)
		return form, false
	}
	form = readPlanForm(r.PostForm, inForce)
	form.Regions = c.regions(r)
	return form, true
}

// Differs are the fields that the form changes of what is in force.
func (f planForm) Differs() (changed []tuned) {
	for _, t := range f.Tuning {
		if t.Changed() {
			changed = append(changed, t)
		}
	}
	return changed
}
