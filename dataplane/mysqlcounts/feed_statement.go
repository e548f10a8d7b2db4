package mysqlcounts

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/gen/sql/dataplanedb"
)

// The statement of a Read is made of the text of FeedRead in queries/dataplane, which the generator has checked against
// the tables. Its predicates are repeated for each range of the primary key.

// feedQuery describes such a statement.
type feedQuery struct {
	ranges     []feedRange // sorted
	rowsMax    int
	payloadMax int  // longer payloads are left out
	snapshots  bool // parts of snapshots have their payloads

	regionGaps []regionGap
	shardGaps  []shardGap
	headsMax   int // most streams to find in the gaps
}

// feedRange is the rows of a stream from a number on.
type feedRange struct {
	store.Stream
	from int64
}

// regionGap is all regions between two names, for example between the names of two regions with cursors. shardGap is
// all shards of a region between two numbers.
type (
	regionGap struct{ above, below string }
	shardGap  struct {
		region       string
		above, below int
	}
)

// regionEnd sorts after all names of regions.
var regionEnd = strings.Repeat("\xff", store.RegionBytesMax+1)

// rowsBeside is the number of rows that a statement returns in addition to a row for each stream.
const rowsBeside = 512

// askFor returns a query for the rows of ranges, with at most about maxBytes of payloads.
func askFor(ranges []feedRange, maxBytes int) feedQuery {
	slices.SortFunc(ranges, compareRanges)
	rows := len(ranges) + rowsBeside
	return feedQuery{ranges: ranges, rowsMax: rows, payloadMax: maxBytes / rows}
}

// askAfter returns a query for the rows after the cursors, and for the streams of other regions without a cursor. To
// prove the cursors, it also reads the cursors' own rows.
func askAfter(q store.FeedQuery) feedQuery {
	var ranges []feedRange
	for s, cursor := range q.After {
		from := cursor.Sequence + 1
		if q.Prove {
			from--
		}
		ranges = append(ranges, feedRange{s, from})
	}
	asked := askFor(ranges, q.MaxBytes)
	asked.snapshots = q.Parts
	asked.regionGaps, asked.shardGaps = gaps(q.Region, asked.ranges)
	asked.headsMax = roomFor(q) + 1 // one more shows whether there are too many
	return asked
}

// roomFor returns how many streams may be read in addition to the streams with a cursor.
func roomFor(q store.FeedQuery) int {
	if q.StreamsMax == 0 {
		return math.MaxInt32
	}
	return max(0, q.StreamsMax-len(q.After))
}

// gaps returns the parts of the key space that are not in known, which must be sorted, and not in the region.
func gaps(region string, known []feedRange) (regions []regionGap, shards []shardGap) {
	names := []string{region}
	for from := 0; from < len(known); {
		name, above := known[from].Region, -1
		for ; from < len(known) && known[from].Region == name; from++ {
			shards = appendShardGap(shards, name, above, known[from].Shard)
			above = known[from].Shard
		}
		shards = appendShardGap(shards, name, above, store.FeedShardsMax)
		names = append(names, name)
	}
	slices.Sort(names)
	above := ""
	for _, name := range append(names, regionEnd) {
		regions = append(regions, regionGap{above, name})
		above = name
	}
	return regions, shards
}

func appendShardGap(gaps []shardGap, region string, above, below int) []shardGap {
	if below-above < 2 {
		return gaps
	}
	return append(gaps, shardGap{region, above, below})
}

// feedText is FeedRead without its repeated predicates.
var feedText = func() (parts [3]string) {
	var ok, ok2 bool
	parts[0], parts[1], ok = strings.Cut(dataplanedb.FeedRead, regionHead+streamPredicate+regionTail)
	parts[1], parts[2], ok2 = strings.Cut(parts[1], regionGapPredicate+or+shardGapPredicate)
	if !ok || !ok2 {
		panic("mysqlcounts: FeedRead lacks a predicate") // FeedRead is a constant, so a test would fail
	}
	return parts
}()

const (
	regionHead         = "(s.region = ? AND (" // followed by the streams of a region
	streamPredicate    = "(s.shard = ? AND s.sequence >= ?)"
	regionTail         = "))"
	regionGapPredicate = "(g.region > ? AND g.region < ?)"
	shardGapPredicate  = "(g.region = ? AND g.shard > ? AND g.shard < ?)"
	never              = "FALSE"
	or                 = " OR "
)

// statement returns the query's text and arguments. It passes names as []byte: see upsertArgs.
func (q feedQuery) statement() (query string, args []any) {
	args = make([]any, 0, 4+3*len(q.ranges)+2*len(q.regionGaps)+3*len(q.shardGaps))
	var b strings.Builder
	b.WriteString(feedText[0])
	args = appendRanges(&b, append(args, q.payloadMax, q.snapshots), q.ranges)
	b.WriteString(feedText[1])
	args = append(args, q.rowsMax)
	for _, g := range q.regionGaps {
		args = append(args, []byte(g.above), []byte(g.below))
	}
	for _, g := range q.shardGaps {
		args = append(args, []byte(g.region), g.above, g.below)
	}
	regions := slices.Repeat([]string{regionGapPredicate}, len(q.regionGaps))
	shards := slices.Repeat([]string{shardGapPredicate}, len(q.shardGaps))
	b.WriteString(cmp.Or(strings.Join(append(regions, shards...), or), never))
	b.WriteString(feedText[2])
	return b.String(), append(args, q.headsMax)
}

// appendRanges writes a predicate for each region, which contains a predicate for each of the region's streams.
func appendRanges(b *strings.Builder, args []any, ranges []feedRange) []any {
	if len(ranges) == 0 {
		b.WriteString(never)
	}
	for i, r := range ranges {
		switch {
		case i == 0:
			b.WriteString(regionHead)
		case ranges[i-1].Region == r.Region:
			b.WriteString(or)
		default:
			b.WriteString(regionTail + or + regionHead)
		}
		if i == 0 || ranges[i-1].Region != r.Region {
			args = append(args, []byte(r.Region))
		}
		b.WriteString(streamPredicate)
		args = append(args, r.Shard, r.from)
		if i == len(ranges)-1 {
			b.WriteString(regionTail)
		}
	}
	return args
}

func compareRanges(a, b feedRange) int { return compareStreams(a.Stream, b.Stream) }

// payloadsText is FeedPayloads without its repeated predicate.
var payloadsText = func() string {
	text, rest, ok := strings.Cut(dataplanedb.FeedPayloads, rowPredicate)
	if !ok || strings.TrimSpace(rest) != "" {
		panic("mysqlcounts: FeedPayloads does not end with its predicate") // a constant, as above
	}
	return text
}()

const rowPredicate = "(region = ? AND shard = ? AND sequence = ?)"

// payloadsStatement returns the statement that reads the payloads of rows.
func payloadsStatement(rows []*store.FeedRow) (query string, args []any) {
	for _, row := range rows {
		args = append(args, []byte(row.Region), row.Shard, row.Sequence)
	}
	return payloadsText + strings.Join(slices.Repeat([]string{rowPredicate}, len(rows)), or), args
}
