package cleanup

import (
	"cmp"
	"time"

	"github.com/weirhq/weir/controlplane"
)

const (
	// BatchRowsMin is the smallest batch that a slow database reduces a sweep to, unless BatchRowsMax is smaller.
	BatchRowsMin = 100

	// BatchRowsLimit is the largest BatchRowsMax that operators can set.
	BatchRowsLimit = 50_000

	batchesLimit = 10_000
)

// SweepLimits bound a run of batches. They are recorded with their run, so that a replay by a process with another
// configuration makes the same decisions.
type SweepLimits struct {
	// BatchRowsMax bounds the rows of a DELETE, 1 to 50,000; default 5,000. A higher value means fewer statements, but
	// longer locks and larger transactions for replicas to apply.
	BatchRowsMax int `json:"batch_rows_max"`

	// BatchesMax bounds the batches of a run, 1 to 10,000; default 200.
	BatchesMax int `json:"batches_max"`

	// BatchSlow is how long a batch can take before the next batch is halved, 1 ms to 1 min; default 500 ms. A lower value
	// is gentler to a busy database, but takes longer to catch up.
	BatchSlow time.Duration `json:"batch_slow_ns"`

	// RunTimeMax is the time in batches after which a run makes no further batch, 1 s to 10 min; default 30 s. An
	// operator's pause waits for a run that is under way.
	RunTimeMax time.Duration `json:"run_time_max_ns"`
}

// DefaultSweepLimits returns the defaults named at the fields.
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

// Batch is the result of a bounded DELETE.
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

// AtOnce reports whether the next sweep should follow at once: the sweep stopped at a bound of its own, and the
// database kept up with it.
func (s StoppedBy) AtOnce() bool { return s == StoppedByBatches || s == StoppedByTime }

// Sweep decides, batch by batch, how many rows the next batch may take and whether there is a next batch. It has no
// clock and does no I/O: the same results give the same sweep, so a run can be replayed. For example:
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

// Next returns how many rows the next batch may take, or false if the sweep is over.
func (s *Sweep) Next() (rows int, ok bool) { return s.next, !s.over }

// Done adds the result of the batch that Next allowed.
func (s *Sweep) Done(b Batch) {
	s.batches++
	s.rows += b.Rows
	s.took += b.Took
	asked, slow := s.next, b.Took > s.limits.BatchSlow
	switch {
	case b.Rows < int64(asked): // short: no expired row is left
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

// Rows returns how many rows have been deleted.
func (s *Sweep) Rows() int64 { return s.rows }

// Batches returns how many batches have been made.
func (s *Sweep) Batches() int { return s.batches }

// StoppedBy returns the bound at which the sweep stopped. It is valid once Next has returned false.
func (s *Sweep) StoppedBy() StoppedBy { return s.stopped }
