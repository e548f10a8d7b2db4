package cleanup

import (
	"cmp"
	"time"

	"github.com/weirhq/weir/controlplane"
)

const (
	// BatchRowsMin is the smallest batch that a slow database brings a sweep down to,
	// unless BatchRowsMax is smaller.
	BatchRowsMin = 100

	// BatchRowsLimit is the most rows that operators may let one DELETE take.
	BatchRowsLimit = 50_000

	batchesLimit = 10_000
)

// SweepLimits bound one run of batches. They are recorded with the run they belong
// to, so that a run that is replayed by a process with another configuration still
// goes the way it went.
type SweepLimits struct {
	// BatchRowsMax is the most rows that one DELETE takes, 1 to 50,000; default
	// 5,000. Higher: fewer statements, longer locks and larger transactions for
	// replicas to apply.
	BatchRowsMax int `json:"batch_rows_max"`

	// BatchesMax is the most batches of one run, 1 to 10,000; default 200.
	BatchesMax int `json:"batches_max"`

	// BatchSlow is how long a batch may take before the next one is halved, 1 ms to
	// 1 min; default 500 ms. Lower: gentler to a busy database, longer to catch up.
	BatchSlow time.Duration `json:"batch_slow_ns"`

	// RunTimeMax is the time in batches after which a run makes no more of them, 1 s
	// to 10 min; default 30 s. An operator's pause waits for a run that is under way.
	RunTimeMax time.Duration `json:"run_time_max_ns"`
}

// DefaultSweepLimits are the defaults named at the fields.
func DefaultSweepLimits() SweepLimits {
	return SweepLimits{BatchRowsMax: 5000, BatchesMax: 200, BatchSlow: 500 * time.Millisecond,
		RunTimeMax: 30 * time.Second}
}

// Validate reports the first field outside its bounds.
func (l SweepLimits) Validate() error {
	return cmp.Or(controlplane.ValidateCount("cleanup batch rows", l.BatchRowsMax, 1, BatchRowsLimit),
		controlplane.ValidateCount("cleanup batches", l.BatchesMax, 1, batchesLimit),
		controlplane.ValidateSpan("cleanup batch slow", l.BatchSlow, time.Millisecond, time.Minute),
		controlplane.ValidateSpan("cleanup run time", l.RunTimeMax, time.Second, 10*time.Minute))
}

// Batch is what one bounded DELETE did.
type Batch struct {
	Rows int64         `json:"rows"`
	Took time.Duration `json:"took_ns"`
}

// StoppedBy is the bound at which a sweep stopped with rows left.
type StoppedBy string

// The bounds of a sweep.
const (
	StoppedByNothing StoppedBy = ""        // no expired row was left
	StoppedByBatches StoppedBy = "batches" // BatchesMax
	StoppedByTime    StoppedBy = "time"    // RunTimeMax
	StoppedBySlow    StoppedBy = "slow"    // BatchSlow, at the smallest batch
)

// AtOnce tells whether the next sweep should follow at once: the bound was one of
// the sweep's own, and the database kept up with it.
func (s StoppedBy) AtOnce() bool { return s == StoppedByBatches || s == StoppedByTime }

// Sweep decides, batch by batch, how many rows the next one may take and whether
// there is a next one. It has no clock and does no I/O: the same answers lead to the
// same sweep, which is what lets a run be replayed.
//
//	for rows, ok := s.Next(); ok; rows, ok = s.Next() {
//		s.Done(delete(rows))
//	}
type Sweep struct {
	limits  SweepLimits
	next    int // rows of the next batch, BatchRowsMin <= next <= BatchRowsMax
	rows    int64
	batches int
	took    time.Duration
	over    bool
	stopped StoppedBy
}

// NewSweep starts a sweep with its largest batch. The limits must be valid.
func NewSweep(limits SweepLimits) *Sweep {
	return &Sweep{limits: limits, next: limits.BatchRowsMax}
}

// Next returns how many rows the next batch may take, or false when the sweep is over.
func (s *Sweep) Next() (rows int, ok bool) { return s.next, !s.over }

// Done takes in what the batch that Next allowed did.
func (s *Sweep) Done(b Batch) {
	s.batches++
	s.rows += b.Rows
	s.took += b.Took
	asked, slow := s.next, b.Took > s.limits.BatchSlow
	switch {
	case b.Rows < int64(asked): // short: it saw the last expired row
		s.stop(StoppedByNothing)
	case slow && asked == s.rowsMin():
		s.stop(StoppedBySlow)
	case s.batches >= s.limits.BatchesMax:
		s.stop(StoppedByBatches)
	case s.took >= s.limits.RunTimeMax:
		s.stop(StoppedByTime)
	case slow:
		s.next = max(asked/2, s.rowsMin())
	case b.Took < s.limits.BatchSlow/2:
		s.next = min(asked*2, s.limits.BatchRowsMax)
	}
}

func (s *Sweep) stop(by StoppedBy) { s.over, s.stopped = true, by }

func (s *Sweep) rowsMin() int { return min(BatchRowsMin, s.limits.BatchRowsMax) }

// Rows is how many rows went so far.
func (s *Sweep) Rows() int64 { return s.rows }

// Batches is how many batches were made so far.
func (s *Sweep) Batches() int { return s.batches }

// StoppedBy is meaningful once Next has answered false.
func (s *Sweep) StoppedBy() StoppedBy { return s.stopped }
