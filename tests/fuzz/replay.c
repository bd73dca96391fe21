/* Runs every file of a folder through a target once, in name order, without a fuzzer.
 *   replay FOLDER */
#include "fuzz.h"

#include <dirent.h>

static void replay(const char *path) {
    static uint8_t bytes[1 << 20];
    uint8_t *data;
    size_t size;
    FILE *file = fopen(path, "rb");
    MUST(file != NULL);
    size = fread(bytes, 1, sizeof bytes, file);
    MUST(!ferror(file) && size < sizeof bytes);
    fclose(file);
    /* As large as it is, so that a sanitizer sees who reads beyond. */
    data = (uint8_t *)malloc(size ? size : 1);
    MUST(data != NULL);
    memcpy(data, bytes, size);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
}

int main(int argc, char **argv) {
    struct dirent **entries;
    int i, count, files = 0;
    MUST(argc == 2);
    count = scandir(argv[1], &entries, NULL, alphasort);
    MUST(count > 0);
    for (i = 0; i < count; i++) {
        char path[4096];
        if (entries[i]->d_name[0] != '.') {
            snprintf(path, sizeof path, "%s/%s", argv[1], entries[i]->d_name);
            /* Whichever ends the program is the last that was named. */
            fprintf(stderr, "%s\n", path);
            replay(path);
            files++;
        }
        free(entries[i]);
    }
    free(entries);
    printf("%d inputs\n", files);
    return files == 0;
}
