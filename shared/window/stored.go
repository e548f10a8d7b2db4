package window

import "time"

// In the database a key's mode and generation are kept in the bits of duration_ms above all durations: 366 days are
// less than 2^35 ms. So keys with different modes or generations differ in the primary key, sort as in Cell.Compare,
// and need no new column, which nodes of the release before could not read. These nodes leave out rows of other modes
// and of any generation, like rows of a duration beyond their bounds.
const (
	modeShift       = 40
	generationShift = 48
)

// StoredDuration returns a key's duration_ms in the database.
func StoredDuration(k *Key) int64 {
	return k.DurationMs() | int64(k.Mode)<<modeShift | int64(k.Generation)<<generationShift
}

// ReadStoredDuration is the inverse of StoredDuration, into k. ok is false for a value that no data plane can have
// written.
func ReadStoredDuration(stored int64, k *Key) (ok bool) {
	durationMs, mode := stored&(1<<modeShift-1), stored>>modeShift&(1<<(generationShift-modeShift)-1)
	if stored < 0 || mode >= int64(Modes) || durationMs > DurationMax.Milliseconds() {
		return false
	}
	k.Duration, k.Mode = time.Duration(durationMs)*time.Millisecond, Mode(mode)
	k.Generation = Generation(stored >> generationShift) // 63 bits: at most GenerationMax
	return true
}

// Rows of the database are dropped by the hour or by the day in which they expire, by their expiry class; rows of the
// third class are deleted row by row. schema/00017_window_counts_expiry_class.sql has the same bounds.
const (
	expireHourlyMax = 12 * time.Hour
	expireDailyMax  = 31 * 24 * time.Hour
)

// ExpiryClass returns a key's expiry_class in the database: 0, 1 or 2. It depends on nothing but the duration.
func ExpiryClass(k *Key) int64 {
	switch {
	case k.Duration <= expireHourlyMax:
		return 0
	case k.Duration <= expireDailyMax:
		return 1
	}
	return 2
}
