/* Reads a JSON file of test data: well-formed, numbers exact to 2^53. Memory is kept to the end. */
#ifndef JSON_H
#define JSON_H

#include "check.h"

typedef enum { JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_NUMBER, JSON_TEXT, JSON_LIST, JSON_OBJECT } json_type;

typedef struct json {
    json_type type;
    double number;
    char *text; /* may hold NUL */
    size_t length;
    char *name; /* in an object */
    struct json *child, *next;
} json;

static inline json *json_value(const char **at);

static inline void json_blank(const char **at) {
    while (**at == ' ' || **at == '\n' || **at == '\t' || **at == '\r') ++*at;
}

static inline void json_expect(const char **at, char c) {
    json_blank(at);
    if (**at != c) check_fail(__FILE__, __LINE__, "not the JSON that was expected");
    ++*at;
}

static inline size_t json_utf8(unsigned code, char *to) {
    if (code < 0x80) return to[0] = (char)code, 1;
    if (code < 0x800) return to[0] = (char)(0xc0 | code >> 6), to[1] = (char)(0x80 | (code & 63)), 2;
    to[0] = (char)(0xe0 | code >> 12);
    to[1] = (char)(0x80 | (code >> 6 & 63));
    to[2] = (char)(0x80 | (code & 63));
    return 3;
}

static inline char *json_string(const char **at, size_t *length) {
    const char *end;
    char *text;
    size_t n = 0;
    json_expect(at, '"');
    for (end = *at; *end && *end != '"'; end++) end += *end == '\\';
    text = (char *)malloc((size_t)(end - *at) + 1);
    CHECK(text != NULL);
    while (**at != '"') {
        char c = *(*at)++;
        if (c != '\\') {
            text[n++] = c;
            continue;
        }
        c = *(*at)++;
        if (c == 'u') {
            char hex[5] = {(*at)[0], (*at)[1], (*at)[2], (*at)[3], 0};
            n += json_utf8((unsigned)strtoul(hex, NULL, 16), text + n);
            *at += 4;
        } else {
            text[n++] = c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
        }
    }
    ++*at;
    text[n] = 0;
    *length = n;
    return text;
}

static inline void json_children(const char **at, json *parent, char close, int named) {
    json **last = &parent->child;
    ++*at;
    json_blank(at);
    while (**at != close) {
        char *name = NULL;
        size_t unused;
        json_blank(at);
        if (named) {
            name = json_string(at, &unused);
            json_expect(at, ':');
        }
        *last = json_value(at);
        (*last)->name = name;
        last = &(*last)->next;
        json_blank(at);
        if (**at == ',') ++*at;
        else if (**at != close) check_fail(__FILE__, __LINE__, "a list without its end");
    }
    ++*at;
}

static inline json *json_value(const char **at) {
    json *value = (json *)calloc(1, sizeof(json));
    CHECK(value != NULL);
    json_blank(at);
    switch (**at) {
    case '{': value->type = JSON_OBJECT; json_children(at, value, '}', 1); break;
    case '[': value->type = JSON_LIST; json_children(at, value, ']', 0); break;
    case '"': value->type = JSON_TEXT; value->text = json_string(at, &value->length); break;
    case 't': value->type = JSON_TRUE; *at += 4; break;
    case 'f': value->type = JSON_FALSE; *at += 5; break;
    case 'n': value->type = JSON_NULL; *at += 4; break;
    default: {
        char *end;
        value->type = JSON_NUMBER;
        value->number = strtod(*at, &end);
        if (end == *at) check_fail(__FILE__, __LINE__, "no JSON value");
        *at = end;
    }
    }
    return value;
}

static inline json *json_read(const char *path) {
    FILE *file = fopen(path, "rb");
    char *text;
    const char *at;
    long size = 0;
    if (!file) check_fail(__FILE__, __LINE__, path);
    CHECK(fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) > 0);
    rewind(file);
    text = (char *)malloc((size_t)size + 1);
    CHECK(text != NULL && fread(text, 1, (size_t)size, file) == (size_t)size);
    text[size] = 0;
    fclose(file);
    at = text;
    {
        json *root = json_value(&at);
        free(text);
        return root;
    }
}

static inline void json_free(json *value) {
    while (value) {
        json *next = value->next;
        json_free(value->child);
        free(value->text);
        free(value->name);
        free(value);
        value = next;
    }
}

/* The member `name`, or NULL. */
static inline const json *json_get(const json *object, const char *name) {
    const json *child = object ? object->child : NULL;
    while (child && strcmp(child->name, name) != 0) child = child->next;
    return child;
}

static inline double json_number(const json *object, const char *name, double absent) {
    const json *found = json_get(object, name);
    return found ? found->number : absent;
}

static inline uint64_t json_count(const json *object, const char *name, uint64_t absent) {
    const json *found = json_get(object, name);
    if (found) CHECK(found->type == JSON_NUMBER && found->number >= 0 && found->number <= 9007199254740992.0);
    return found ? (uint64_t)found->number : absent;
}

static inline int json_is(const json *value, const char *text) {
    return value && value->type == JSON_TEXT && strcmp(value->text, text) == 0;
}

#endif
