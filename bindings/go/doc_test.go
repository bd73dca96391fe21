package limiter

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

// Whatever is exported says what it is.
func TestEverythingExportedIsDocumented(t *testing.T) {
	for _, dir := range []string{".", "httplimit"} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		fset := token.NewFileSet()
		var files []*ast.File
		for _, entry := range entries {
			if name := dir + "/" + entry.Name(); strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
				file, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
				if err != nil {
					t.Fatal(err)
				}
				files = append(files, file)
			}
		}
		p, err := doc.NewFromFiles(fset, files, dir)
		if err != nil {
			t.Fatal(err)
		}
		names := 0
		check := func(name, text string) {
			names++
			if strings.TrimSpace(text) == "" {
				t.Errorf("%s: nothing is said about %s", dir, name)
			}
		}
		check("the package", p.Doc)
		funcs := func(of string, all []*doc.Func) {
			for _, f := range all {
				check(of+f.Name, f.Doc)
			}
		}
		values := func(all []*doc.Value) {
			for _, v := range all {
				check(strings.Join(v.Names, ", "), v.Doc)
			}
		}
		funcs("", p.Funcs)
		values(append(p.Consts, p.Vars...))
		for _, typ := range p.Types {
			check(typ.Name, typ.Doc)
			funcs(typ.Name+".", append(typ.Funcs, typ.Methods...))
			values(append(typ.Consts, typ.Vars...))
		}
		if names < 5 {
			t.Errorf("%s: only %d names", dir, names)
		}
	}
}
