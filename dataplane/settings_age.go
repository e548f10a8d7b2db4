package dataplane

import (
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/store"
)

// ErrOldSettings is of settings that were read from the store before those in force, which stay: the copy of a relay
// that has stopped.
var ErrOldSettings = errors.New("dataplane: the settings are older than those in force")

// settingsSlack is by how much the times at which settings were read have to differ to tell which are older.
const settingsSlack = time.Second

// settingsRead is when the settings in force were read from the store, at the latest known; 0: none are. It is steady
// time, as a step of the wall clock makes no settings older.
type settingsRead clock.Steady

// take notes rows that were asked for at asked and came at came, or says that they are older than those in force. Rows
// of the version in force are what they are, however old.
func (s *settingsRead) take(rows *store.SettingsRows, inForce string, asked, came clock.Steady) error {
	age := clock.Steady(rows.Age.Milliseconds())
	same := rows.Version != "" && rows.Version == inForce
	if *s != 0 && !same && settingsRead(came-age)+settingsRead(settingsSlack.Milliseconds()) < *s {
		return fmt.Errorf("%w: they were read %v ago, before those in force", ErrOldSettings,
			rows.Age.Round(time.Second))
	}
	*s = max(*s, settingsRead(asked-age))
	return nil
}
