package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// commandFiles are what a command line can name: the program and every
// argument, a folder with all that is in it, and the files that words in one
// lead to, as in a script for a shell, with the programs of that name in the
// folders that are named besides, as in a PATH. Commands run in the root folder.
func commandFiles(argv []string) []held {
	all := map[held]bool{}
	add := func(name string, tree bool) {
		if name == "" || len(name) >= syscall.PathMax || strings.ContainsRune(name, 0) {
			return
		}
		path := filepath.Join("/", name)
		if isVirtual(path) {
			return
		}
		if info, err := os.Stat(path); err == nil && info.IsDir() && !strings.Contains(name, "/") {
			return // a word such as run, not the folder /run
		}
		all[held{path, tree}] = true
	}
	folders, bare := map[string]bool{}, map[string]bool{}
	for _, arg := range argv {
		add(arg, strings.Contains(arg, "/"))
		for _, word := range append(wordsIn(arg), arg) {
			if word != arg {
				add(word, false)
			}
			if info, err := os.Stat(word); filepath.IsAbs(word) && err == nil && info.IsDir() {
				folders[word] = true
			} else if !filepath.IsAbs(word) {
				bare[word] = true
			}
		}
	}
	for dir := range folders {
		for name := range bare {
			path := filepath.Join(dir, name)
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				add(path, false)
			}
		}
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b held) int { return strings.Compare(a.path, b.path) })
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
	return words
}
