/* JPEG on stdin, raw RGB on stdout: libjpeg with accurate DCT and its own switch for block smoothing off. */
#include <stdio.h>
#include <stdlib.h>
#include <jpeglib.h>

int main(void) {
    struct jpeg_decompress_struct image;
    struct jpeg_error_mgr errors;
    image.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&image);
    jpeg_stdio_src(&image, stdin);
    jpeg_read_header(&image, TRUE);
    image.out_color_space = JCS_RGB;
    image.dct_method = JDCT_ISLOW;
    image.do_block_smoothing = FALSE;
    jpeg_start_decompress(&image);
    JSAMPROW row = malloc(image.output_width * 3);
    while (image.output_scanline < image.output_height) {
        jpeg_read_scanlines(&image, &row, 1);
        fwrite(row, 3, image.output_width, stdout);
    }
    jpeg_finish_decompress(&image);
    return 0;
}
