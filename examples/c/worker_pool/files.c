/*
 * The work: which files there are, and the checksum of one.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _XOPEN_SOURCE 700

#include "worker_pool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEEPEST 32
#define LARGEST_FILE (64 * 1024 * 1024)

static int is_skipped_folder(const char *name) {
    return strcmp(name, ".git") == 0 || strcmp(name, "target") == 0 || strcmp(name, "build") == 0;
}

static char *joined(const char *folder, const char *name) {
    size_t size = strlen(folder) + strlen(name) + 2;
    char *path = malloc(size);
    if (path != NULL) snprintf(path, size, "%s/%s", folder, name);
    return path;
}

static int find_in(const char *folder, int depth, struct files *files);

/* Takes `path` over: it is kept in `files` or freed. */
static int add_path(char *path, const char *name, int depth, struct files *files) {
    struct stat status;
    int result = 0;

    if (lstat(path, &status) != 0) {
        files->left_out++;
    } else if (S_ISDIR(status.st_mode)) {
        if (!is_skipped_folder(name) && depth < DEEPEST) result = find_in(path, depth + 1, files);
    } else if (S_ISREG(status.st_mode)) {
        if (files->count == MOST_FILES) {
            files->more = 1;
        } else if (status.st_size <= LARGEST_FILE && access(path, R_OK) == 0) {
            files->path[files->count++] = path;
            return 0;
        } else {
            files->left_out++;
        }
    }
    free(path);
    return result;
}

static int find_in(const char *folder, int depth, struct files *files) {
    struct dirent *entry;
    int result = 0;
    DIR *dir = opendir(folder);

    if (dir == NULL) {
        if (depth > 0) {
            files->left_out++;
            return 0;
        }
        fprintf(stderr, "worker_pool: cannot open the folder %s: %s\n", folder, strerror(errno));
        return -1;
    }
    while (result == 0 && !files->more && (entry = readdir(dir)) != NULL) {
        char *path;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        path = joined(folder, entry->d_name);
        if (path == NULL) {
            fprintf(stderr, "worker_pool: out of memory\n");
            result = -1;
        } else {
            result = add_path(path, entry->d_name, depth, files);
        }
    }
    closedir(dir);
    return result;
}

static uint32_t crc32_of_byte[256];

static void crc32_prepare(void) {
    uint32_t byte;
    int bit;
    for (byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (UINT32_C(0xEDB88320) & (0U - (crc & 1U)));
        crc32_of_byte[byte] = crc;
    }
}

int files_find(const char *folder, struct files *files) {
    crc32_prepare();
    files->count = 0;
    files->left_out = 0;
    files->more = 0;
    if (find_in(folder, 0, files) != 0) return -1;
    if (files->count == 0) {
        fprintf(stderr, "worker_pool: there are no readable files in %s\n", folder);
        return -1;
    }
    return 0;
}

void files_free(struct files *files) {
    size_t i;
    for (i = 0; i < files->count; i++) free(files->path[i]);
    files->count = 0;
}

static uint32_t crc32_add(uint32_t crc, const unsigned char *data, size_t size) {
    size_t i;
    for (i = 0; i < size; i++) crc = (crc >> 8) ^ crc32_of_byte[(crc ^ data[i]) & 0xFFU];
    return crc;
}

int file_checksum(const char *path, uint32_t *crc, uint64_t *bytes) {
    unsigned char buffer[16384];
    uint32_t sum = UINT32_MAX;
    int file = open(path, O_RDONLY | O_CLOEXEC);

    *crc = 0;
    *bytes = 0;
    if (file < 0) return -1;
    for (;;) {
        ssize_t got = read(file, buffer, sizeof buffer);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            int error = errno;
            close(file);
            errno = error;
            return -1;
        }
        if (got == 0) break;
        sum = crc32_add(sum, buffer, (size_t)got);
        *bytes += (uint64_t)got;
    }
    close(file);
    *crc = ~sum;
    return 0;
}
