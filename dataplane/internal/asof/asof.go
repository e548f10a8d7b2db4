// Package asof orders what was read from a store by when it was read.
package asof

import (
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/store"
)

// ErrOld is exported as dataplane.ErrOldSettings.
var ErrOld = errors.New("dataplane: the settings just read are older than those in use")

// slack is the least difference between two times of reading from which one counts as older.
const slack = time.Second

// Settings is when the settings in use were read from the store, or 0 if there are none. It is
// steady time, so that a step of the wall clock makes no settings older.
type Settings clock.Steady

// Take records rows that were requested at asked and received at came. It returns ErrOld if they
// are older than the settings in use. Rows with the same version as those in use are never too old.
func (s *Settings) Take(rows *store.SettingsRows, inForce string, asked, came clock.Steady) error {
	age := clock.Steady(rows.Age.Milliseconds())
	same := rows.Version != "" && rows.Version == inForce
	if *s != 0 && !same && Settings(came-age)+Settings(slack.Milliseconds()) < *s {
		return fmt.Errorf("%w: they were read from the store %v ago", ErrOld, rows.Age.Round(time.Second))
	}
	*s = max(*s, Settings(asked-age))
	return nil
}
