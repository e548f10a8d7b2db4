package window

import "bytes"

// radix is a tree of texts in which each node stands for a common beginning of some of them. It is immutable. A step
// reads a node and some adjacent bytes, so with many texts its cost is the cost of the cache misses.
type radix struct {
	nodes []radixNode // the root is the first; the children of a node lie side by side
	bytes []byte
}

type radixNode struct {
	at     uint32 // in bytes: the label, the text that it adds to its parent's
	label  uint16 // length
	firsts uint16 // behind the label: how many children, by the first bytes of their labels
	child  int32  // the first of them
	value  int32  // place of its text; -1 where no text ends here
}

// newRadix makes a tree of texts that are sorted and differ; their values are their places.
func newRadix(texts []string) *radix {
	type task struct{ from, until, depth int } // of the node of the same number
	r := &radix{nodes: []radixNode{{value: -1}}}
	tasks := []task{{0, len(texts), 0}}
	for node := 0; node < len(tasks); node++ {
		t := tasks[node]
		n := r.nodes[node]
		if t.from < t.until {
			n.at = uint32(len(r.bytes))
			r.bytes = append(r.bytes, texts[t.from][t.depth-int(n.label):t.depth]...)
			if len(texts[t.from]) == t.depth {
				n.value = int32(t.from)
				t.from++
			}
		}
		n.child = int32(len(r.nodes))
		for at := t.from; at < t.until; n.firsts++ {
			first, end := texts[at][t.depth], at+1
			for end < t.until && texts[end][t.depth] == first {
				end++
			}
			label := common(texts[at][t.depth:], texts[end-1][t.depth:])
			tasks = append(tasks, task{at, end, t.depth + label})
			r.nodes = append(r.nodes, radixNode{label: uint16(label), value: -1})
			r.bytes = append(r.bytes, first)
			at = end
		}
		r.nodes[node] = n
	}
	return r
}

// step goes from a node, whose text is the first depth bytes of text, to the child that text goes
// on with; -1 where there is none.
func (r *radix) step(node int32, depth int, text []byte) (next int32, at int) {
	n := &r.nodes[node]
	if depth == len(text) || n.firsts == 0 {
		return -1, 0
	}
	firsts := r.bytes[n.at+uint32(n.label):][:n.firsts]
	i := bytes.IndexByte(firsts, text[depth])
	if i < 0 {
		return -1, 0
	}
	next = n.child + int32(i)
	n = &r.nodes[next]
	if at = depth + int(n.label); at > len(text) || n.label > 1 &&
		string(text[depth:at]) != string(r.bytes[n.at:][:n.label]) {
		return -1, 0
	}
	return next, at
}

// common returns the length of the common beginning of two texts.
func common(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
