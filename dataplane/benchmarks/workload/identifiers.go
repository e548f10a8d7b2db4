package workload

import (
	"fmt"
	"math/rand/v2"
)

// IdentifierBytes is the length of every identifier. The allocator does not round this size up, so measured memory has
// no padding.
const IdentifierBytes = 16

// Identifier returns the i-th identifier, in memory of its own.
func Identifier(i int) string { return fmt.Sprintf("user-%011d", i) }

// known returns 0, 1, … n-1.
func known(n int) []int32 {
	all := make([]int32, n)
	for i := range all {
		all[i] = int32(i)
	}
	return all
}

// spell writes the identifiers of a sequence of decisions one after another, each decision with its own copy. A
// request's identifier has just been parsed: it is in the cache, and it is never the string that a limiter keeps, which
// Go would find equal by its address alone.
func spell(sequence []int32) []string {
	text := make([]byte, 0, len(sequence)*IdentifierBytes)
	for _, i := range sequence {
		text = fmt.Appendf(text, "user-%011d", i)
	}
	all := string(text)
	identifiers := make([]string, len(sequence))
	for i := range identifiers {
		identifiers[i] = all[i*IdentifierBytes : (i+1)*IdentifierBytes]
	}
	return identifiers
}

// The draws are seeded: all processes draw the same.

func drawOne(n, _ int) []int32 { return make([]int32, n) }

func drawUniform(n, identifiers int) []int32 {
	random := rand.New(rand.NewPCG(1, 1))
	sequence := make([]int32, n)
	for i := range sequence {
		sequence[i] = random.Int32N(int32(identifiers))
	}
	return sequence
}

// drawZipf shuffles the ranks, because the most frequent identifier must not be the first entry, next to the second
// most frequent.
func drawZipf(n, identifiers int) []int32 {
	random := rand.New(rand.NewPCG(2, 2))
	ranks := rand.NewZipf(random, 1.1, 1, uint64(identifiers-1))
	shuffled := random.Perm(identifiers)
	sequence := make([]int32, n)
	for i := range sequence {
		sequence[i] = int32(shuffled[ranks.Uint64()])
	}
	return sequence
}
