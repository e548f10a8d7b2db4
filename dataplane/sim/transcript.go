package sim

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/shared/strict"
	"github.com/weirhq/weir/shared/tuning"
	"github.com/weirhq/weir/shared/window"
)

// Transcript is a sequence of events in regions, with their times and the results that they must have. README.md has
// the grammar.
type Transcript struct {
	Regions  []string
	Nodes    int // in each region
	Limit    int64
	Duration time.Duration
	Floor    float64
	Step     float64
	Scenes   []Scene
}

// Scene is a line of a transcript.
type Scene struct {
	Line   int // line number in the text, for messages; not a part of the scene
	At     time.Duration
	Region string // "*" for all regions
	Node   int    // from 1 on; 0 means all nodes, or the first if the verb needs a single node
	Verb   string
	Items  []Item        // of allow, peek, batch and reset
	Times  int           // of allow
	Server string        // of cut and heal
	Shift  time.Duration // of clock
	Want   string        // "" without an expectation
}

// Item is a cost on a key.
type Item struct {
	Key  string
	Cost int64
}

// Bounds of a transcript.
const (
	TranscriptBytesMax = 64 << 10
	transcriptNodesMax = 8
	transcriptTimesMax = 100_000
	transcriptAtMax    = 24 * time.Hour
)

// defaultKey is the identifier in lines without a key.
const defaultKey = "k"

var nameForm = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,31}$`)

// ParseTranscript parses a transcript. Errors wrap ErrInvalid and have the number of the line.
func ParseTranscript(text string) (*Transcript, error) {
	if len(text) > TranscriptBytesMax {
		return nil, fmt.Errorf("%w: the transcript is %d bytes long (at most %d)", ErrInvalid, len(text), TranscriptBytesMax)
	}
	set := tuning.Default()
	t := &Transcript{Nodes: 1, Limit: 10, Duration: time.Minute, Floor: set.Floor, Step: set.Step}
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if err := t.parseLine(i+1, line); err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrInvalid, i+1, err)
		}
	}
	if len(t.Regions) == 0 {
		return nil, fmt.Errorf("%w: the transcript names no regions", ErrInvalid)
	}
	return t, nil
}

func (t *Transcript) parseLine(number int, line string) error {
	if strings.HasPrefix(line, "regions ") {
		if len(t.Regions) > 0 {
			return fmt.Errorf("regions are named twice")
		}
		return t.parseHead(strings.Fields(line)[1:])
	}
	if len(t.Regions) == 0 {
		return fmt.Errorf("want a line that begins with \"regions\" first")
	}
	said, want, expects := strings.Cut(line, "->")
	words := strings.Fields(said)
	if len(words) < 3 {
		return fmt.Errorf("want TIME WHO WHAT")
	}
	s := Scene{Line: number, Want: strings.Join(strings.Fields(want), " ")}
	if expects && s.Want == "" {
		return fmt.Errorf("nothing stands after ->")
	}
	var err error
	if s.At, err = strict.Duration("time", words[0], 0, transcriptAtMax); err != nil {
		return fmt.Errorf("the time is %q (0s to %v)", words[0], transcriptAtMax)
	}
	if n := len(t.Scenes); n > 0 && s.At < t.Scenes[n-1].At {
		return fmt.Errorf("the time is %v, before the line above", s.At)
	}
	if err := t.parseWho(words[1], &s); err != nil {
		return err
	}
	if err := s.parseWhat(words[2], words[3:]); err != nil {
		return err
	}
	t.Scenes = append(t.Scenes, s)
	return nil
}

func (t *Transcript) parseHead(words []string) error {
	for len(words) > 0 && nameForm.MatchString(words[0]) &&
		!slices.Contains([]string{"nodes", "limit", "floor", "step"}, words[0]) {
		if slices.Contains(t.Regions, words[0]) {
			return fmt.Errorf("region %s is named twice", words[0])
		}
		t.Regions = append(t.Regions, words[0])
		words = words[1:]
	}
	if len(t.Regions) == 0 || len(t.Regions) > len(regionNames) {
		return fmt.Errorf("%d regions are named (1 to %d, in small letters)", len(t.Regions), len(regionNames))
	}
	for ; len(words) >= 2; words = words[2:] {
		if err := t.parseSetting(words[0], words[1]); err != nil {
			return err
		}
	}
	if len(words) > 0 {
		return fmt.Errorf("%q has no value", words[0])
	}
	return nil
}

func (t *Transcript) parseSetting(name, value string) (err error) {
	switch name {
	case "nodes":
		if t.Nodes, err = count(value, 1, transcriptNodesMax); err != nil {
			return fmt.Errorf("nodes is %q (1 to %d)", value, transcriptNodesMax)
		}
	case "limit":
		limit, duration, _ := strings.Cut(value, "/")
		if t.Limit, err = strict.Int(name, limit, 0, window.LimitMax); err != nil {
			return fmt.Errorf("limit is %q (0 to %d, a slash and a duration)", value, int64(window.LimitMax))
		}
		t.Duration, err = strict.Duration(name, duration, window.DurationMin, transcriptAtMax)
		if err != nil || t.Duration%time.Millisecond != 0 {
			return fmt.Errorf("the duration is %q (%v to %v)", duration, window.DurationMin, transcriptAtMax)
		}
	case "floor", "step":
		share, err := strict.Float(name, value, 0, 1)
		if err != nil {
			return fmt.Errorf("%s is %q (0 to 1)", name, value)
		}
		if name == "floor" {
			t.Floor = share
		} else {
			t.Step = share
		}
	default:
		return fmt.Errorf("%q is unknown (nodes, limit, floor, step)", name)
	}
	return nil
}

func (t *Transcript) parseWho(who string, s *Scene) error {
	region, node, numbered := strings.Cut(who, ".")
	s.Region = region
	if region != "*" && !slices.Contains(t.Regions, region) {
		return fmt.Errorf("region %q is unknown (%s, *)", region, strings.Join(t.Regions, ", "))
	}
	if !numbered {
		return nil
	}
	n, err := count(node, 1, t.Nodes)
	if err != nil {
		return fmt.Errorf("node %q of %s is unknown (1 to %d)", node, region, t.Nodes)
	}
	s.Node = n
	return nil
}

// parseWhat parses the verb and its arguments.
func (s *Scene) parseWhat(verb string, words []string) (err error) {
	s.Verb = verb
	switch verb {
	case "allow":
		return s.parseAllow(words)
	case "peek":
		return s.parseKey(words, 0)
	case "reset":
		if s.Region != "*" || s.Node != 0 {
			return fmt.Errorf("a reset is everybody's: want * reset")
		}
		return s.parseKey(words, 0)
	case "batch":
		return s.parseBatch(strings.Join(words, " "))
	case "cut", "heal":
		if len(words) != 1 || words[0] != "redis" && words[0] != "mysql" {
			return fmt.Errorf("%s what (redis, mysql)", verb)
		}
		s.Server = words[0]
	case "clock":
		if len(words) != 1 {
			return fmt.Errorf("clock how (+1s, -1s)")
		}
		shift, _ := strings.CutPrefix(words[0], "+")
		if s.Shift, err = strict.Duration("clock", shift, -transcriptAtMax, transcriptAtMax); err != nil ||
			shift != words[0] && s.Shift < 0 {
			return fmt.Errorf("the clock's shift is %q (at most %v either way)", words[0], transcriptAtMax)
		}
	case "replay", "publish", "stored", "wipe", "crash", "restart":
		if len(words) > 0 {
			return fmt.Errorf("%q after %s", words[0], verb)
		}
	default:
		return fmt.Errorf("%q is unknown (allow, batch, peek, reset, replay, publish, stored, cut, heal, wipe, crash, "+
			"restart, clock)", verb)
	}
	return nil
}

func (s *Scene) parseAllow(words []string) error {
	if len(words) == 0 {
		return fmt.Errorf("allow how much")
	}
	cost, err := parseCost(words[0])
	if err != nil {
		return err
	}
	s.Times, words = 1, words[1:]
	if len(words) > 0 {
		if times, ok := strings.CutPrefix(words[0], "x"); ok && times != "" && strings.Trim(times, "0123456789") == "" {
			if s.Times, err = count(times, 1, transcriptTimesMax); err != nil {
				return fmt.Errorf("times is %q (x1 to x%d)", words[0], transcriptTimesMax)
			}
			words = words[1:]
		}
	}
	return s.parseKey(words, cost)
}

func (s *Scene) parseKey(words []string, cost int64) error {
	switch {
	case len(words) == 0:
		words = []string{defaultKey}
	case len(words) > 1 || !nameForm.MatchString(words[0]):
		return fmt.Errorf("the key is %q (one name in small letters)", strings.Join(words, " "))
	}
	s.Items = []Item{{words[0], cost}}
	return nil
}

func (s *Scene) parseBatch(text string) error {
	for item := range strings.SplitSeq(text, ",") {
		words := strings.Fields(item)
		if len(words) != 2 || !nameForm.MatchString(words[0]) {
			return fmt.Errorf("the batch's item is %q (KEY COST)", strings.TrimSpace(item))
		}
		cost, err := parseCost(words[1])
		if err != nil {
			return err
		}
		s.Items = append(s.Items, Item{words[0], cost})
	}
	return nil
}

// count parses a number in the form of settings.
func count(text string, least, most int) (int, error) {
	n, err := strict.Int("", text, int64(least), int64(most))
	return int(n), err
}

func parseCost(text string) (int64, error) {
	cost, err := strict.Int("cost", text, 0, window.LimitMax)
	if err != nil {
		return 0, fmt.Errorf("the cost is %q (0 to %d)", text, int64(window.LimitMax))
	}
	return cost, nil
}

// String formats the transcript in the form that ParseTranscript accepts, without comments.
func (t *Transcript) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "regions %s nodes %d limit %d/%v floor %v step %v\n", strings.Join(t.Regions, " "), t.Nodes, t.Limit,
		t.Duration, t.Floor, t.Step)
	for _, s := range t.Scenes {
		fmt.Fprintln(&b, s.String())
	}
	return b.String()
}

// String returns the scene's line.
func (s *Scene) String() string {
	who := s.Region
	if s.Node > 0 {
		who = fmt.Sprintf("%s.%d", who, s.Node)
	}
	what := s.Verb
	switch s.Verb {
	case "allow":
		what = fmt.Sprintf("allow %d x%d %s", s.Items[0].Cost, s.Times, s.Items[0].Key)
	case "peek", "reset":
		what += " " + s.Items[0].Key
	case "batch":
		var items []string
		for _, i := range s.Items {
			items = append(items, fmt.Sprintf("%s %d", i.Key, i.Cost))
		}
		what = "batch " + strings.Join(items, ", ")
	case "cut", "heal":
		what += " " + s.Server
	case "clock":
		what += " " + s.Shift.String()
	}
	if s.Want != "" {
		what += " -> " + s.Want
	}
	return fmt.Sprintf("%v %s %s", s.At, who, what)
}
