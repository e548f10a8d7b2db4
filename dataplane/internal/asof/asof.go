// Package asof orders what was read from a store by when it was read.
package asof

import (
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/store"
)

// ErrOld is dataplane.ErrOldSettings.
var ErrOld = errors.New("dataplane: the settings are older than those in force")

// slack is by how much the times at which settings were read have to differ to tell which are older.
const slack = time.Second

// Settings is when the settings in force were read from the store, at the latest known; 0: none are. It is steady
// time, as a step of the wall clock makes no settings older.
type Settings clock.Steady

// Take notes rows that were asked for at asked and came at came, or returns ErrOld if they are older than those in
// force. Rows of the version in force are what they are, however old.
func (s *Settings) Take(rows *store.SettingsRows, inForce string, asked, came clock.Steady) error {
	age := clock.Steady(rows.Age.Milliseconds())
	same := rows.Version != "" && rows.Version == inForce
	if *s != 0 && !same && Settings(came-age)+Settings(slack.Milliseconds()) < *s {
		return fmt.Errorf("%w: they were read %v ago, before those in force", ErrOld, rows.Age.Round(time.Second))
	}
	*s = max(*s, Settings(asked-age))
	return nil
}
