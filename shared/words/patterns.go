package main

import (
	"fmt"
	"regexp"
	"strings"
)

// pattern is a habit of language, and how often it may or should be met in 1,000 words.
type pattern struct {
	name        string
	re          *regexp.Regexp
	most, least float64 // most < 0: no bound
}

func (p pattern) holds(per float64) bool {
	return per >= p.least-0.05 && (p.most < 0 || per < p.most+0.05)
}

func (p pattern) target() string {
	if p.most >= 0 {
		return fmt.Sprintf("<= %g", p.most)
	}
	return fmt.Sprintf(">= %g", p.least)
}

func words(list string) *regexp.Regexp { return regexp.MustCompile(`(?i)\b(?:` + list + `)\b`) }

var patterns = []pattern{
	{"what, as a noun", words(`what(?:ever)?`), 3, 0},
	{"code that speaks: tell, hear, say, ask, believe, know",
		words(`tells?|told|telling|hears?|heard|says?|said|asks?|asked|believes?|believed|knows?|knew|known`), 1.5, 0},
	{"one, ones, those instead of the noun", words(`ones?|those`), 4, 0},
	{"whoever, nobody, anew, beside, is of", words(`whoever|nobody|anew|besides?|(?:is|are) of`), 0, 0},
	{"is true of or when, tells whether", words(`is true (?:of|when|while|if)|tells? whether`), 0, 0},
	{"can, should, must", words(`can|should|must`), -1, 4},
	{"for example, such as, e.g.", words(`for example|such as|e\.g`), -1, 0.8},
}

// counts has the counts of a text, or of several texts.
type counts struct {
	words int
	found [7]int // by pattern
}

func (c *counts) add(d *counts) {
	c.words += d.words
	for i := range c.found {
		c.found[i] += d.found[i]
	}
}

// per returns how often a pattern is met in 1,000 words.
func (c *counts) per(pattern int) float64 {
	return 1000 * float64(c.found[pattern]) / float64(max(1, c.words))
}

// excess returns how many matches are above the targets.
func (c *counts) excess() (sum float64) {
	for i, p := range patterns {
		if p.most >= 0 {
			sum += max(0, float64(c.found[i])-p.most*float64(c.words)/1000)
		}
	}
	return sum
}

func count(text string) (c counts) {
	c.words = len(strings.Fields(text))
	for i, p := range patterns {
		c.found[i] = len(p.re.FindAllStringIndex(text, -1))
	}
	return c
}
