package rules

import (
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/store"
)

// ErrOld is exported as dataplane.ErrOldSettings.
var ErrOld = errors.New("dataplane: the settings just read are older than those in use")

// ageSlack is the least difference at which a time of reading counts as older than another.
const ageSlack = time.Second

// readTime is when the settings in use were read from the store, or 0 if there are none. It is
// steady time, so that a step of the wall clock makes no settings older.
type readTime clock.Steady

// take records rows that were requested at asked and received at came. It returns ErrOld if they are older than the
// settings in use. Rows with the version of the settings in use are never too old.
func (s *readTime) take(rows *store.SettingsRows, inForce string, asked, came clock.Steady) error {
	age := clock.Steady(rows.Age.Milliseconds())
	same := rows.Version != "" && rows.Version == inForce
	if *s != 0 && !same && readTime(came-age)+readTime(ageSlack.Milliseconds()) < *s {
		return fmt.Errorf("%w: they were read from the store %v ago", ErrOld, rows.Age.Round(time.Second))
	}
	*s = max(*s, readTime(asked-age))
	return nil
}
