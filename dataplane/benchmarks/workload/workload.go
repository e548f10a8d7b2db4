// Package workload is the input of every limiter in the comparison: the same identifiers, in the same order, as many
// times. It is a module of its own, without requirements. So the same code can measure limiters whose dependencies
// exclude each other.
package workload

// Decide requests a unit for an identifier, and reports whether it was granted.
type Decide func(identifier string) bool

// Limiter is a way to decide, with its name in results.
type Limiter struct {
	Name string

	// New makes an empty limiter that grants each identifier limit units an hour. It does not get the number of
	// identifiers. stop frees its memory.
	New func(limit int64) (decide Decide, stop func())

	// Rival reports whether you could use the limiter instead of Weir: it is neither ours nor a floor.
	Rival bool

	// Floor reports whether the limiter does less than any limiter has to. A floor never denies.
	Floor bool
}

// Case is a pattern of requests.
type Case struct {
	Name  string
	About string // a line for people

	Identifiers int   // how many the limiter has before the clock starts
	Limit       int64 // for each of them
	Denied      bool  // every timed decision must be a denial; otherwise none may be
	Fresh       bool  // every timed decision is about an identifier never seen before
	Ours        bool  // another way to call Weir, which no rival has

	draw func(n, identifiers int) []int32 // which identifier each of n decisions is about
}

const (
	// Never is a limit that no benchmark reaches.
	Never = 1 << 40
	// Once is the smallest limit: filling uses it up.
	Once = 1
)

// The cases, in the order of tables.
var (
	Hot     = Case{Name: "hot", About: "one identifier", Identifiers: 1, Limit: Never, draw: drawOne}
	Uniform = Case{Name: "uniform100k", About: "100,000 identifiers, each as likely as any other", Identifiers: 100_000,
		Limit: Never, draw: drawUniform}
	Zipf = Case{Name: "zipf1m", About: "1,000,000 identifiers, Zipf with s = 1.1", Identifiers: 1_000_000, Limit: Never,
		draw: drawZipf}
	Denied = Case{Name: "denied", About: "one identifier, over its limit", Identifiers: 1, Limit: Once, Denied: true,
		draw: drawOne}
	First = Case{Name: "first", About: "identifiers never seen before; the table grows meanwhile",
		Limit: Never, Fresh: true}

	// These are Hot, for other ways to call Weir.
	Batch = Case{Name: "batch4", About: "four known identifiers in one call", Identifiers: 1, Limit: Never, Ours: true,
		draw: drawOne}
	Handle = Case{Name: "handle", About: "one identifier, through a handle on it", Identifiers: 1, Limit: Never,
		Ours: true, draw: drawOne}
	HandleAt = Case{Name: "handle-at", About: "the same, by callers who tell the time themselves", Identifiers: 1,
		Limit: Never, Ours: true, draw: drawOne}

	Cases = []Case{Hot, Uniform, Zipf, Denied, First, Batch, Handle, HandleAt}
)
