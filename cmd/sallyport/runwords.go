package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// commandFiles are the files and folders that a command line can name: the
// program, every argument, and what stands in one, as in a script for a shell.
// Commands run in the root folder.
func commandFiles(argv []string) []string {
	var out []string
	for _, arg := range argv {
		for _, name := range append([]string{arg}, wordsIn(arg)...) {
			if name == "" || len(name) >= syscall.PathMax || strings.ContainsRune(name, 0) {
				continue
			}
			path := filepath.Join("/", name)
			if info, err := os.Stat(path); err == nil && info.IsDir() && !strings.Contains(name, "/") {
				continue // a word such as run, not the folder /run
			}
			out = append(out, path)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// wordsIn are the words of a text that could be paths, however options, shells
// and other languages set them apart. There may be more than are meant, which
// does no harm where they lead to nothing. What is only written to, with >, is
// not among them.
func wordsIn(text string) []string {
	const quotes, marks = "'\"`", " \t\r\n;|&<>(){}[],:=@+"
	text = regexp.MustCompile("(^|[^<>])>>?\\s*[^\\s;|&<>()`]+").ReplaceAllString(text, "$1 ")
	split := func(s, at string) []string {
		return strings.FieldsFunc(s, func(c rune) bool { return strings.ContainsRune(at, c) })
	}
	var words []string
	variable := func(name string) string {
		if name == "PATH" {
			return "" // in which programs are looked for, whatever they are
		}
		return os.Getenv(name)
	}
	for _, s := range []string{text, os.Expand(text, variable)} {
		bare := strings.Map(func(c rune) rune {
			if strings.ContainsRune(quotes, c) {
				return -1
			}
			return c
		}, s)
		words = slices.Concat(words, split(s, quotes), split(s, quotes+marks), split(bare, marks))
		if _, value, ok := strings.Cut(s, "="); ok {
			words = append(words, value)
		}
	}
	for _, word := range slices.Clone(words) {
		if rest, ok := strings.CutPrefix(word, "~"); ok && (rest == "" || rest[0] == '/') {
			words = append(words, os.Getenv("HOME")+rest)
		}
		if i := strings.IndexByte(word, '/'); i > 0 && word[0] == '-' {
			words = append(words, word[i:]) // what an option is given
		}
	}
	for i, word := range words {
		if glob := strings.IndexAny(word, "*?["); glob >= 0 && strings.Contains(word[:glob], "/") {
			words[i] = word[:strings.LastIndexByte(word[:glob], '/')+1] // the folder that is looked through
		}
	}
	return words
}
