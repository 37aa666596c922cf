/* JPEG on stdin, raw RGB on stdout: libjpeg with accurate DCT and its own switch for block smoothing off, at
 * 1/(the first argument) of the size. Status 3: it warned. */
#include <stdio.h>
#include <stdlib.h>
#include <jpeglib.h>

int main(int count, char **arguments) {
    struct jpeg_decompress_struct image;
    struct jpeg_error_mgr errors;
    image.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&image);
    jpeg_stdio_src(&image, stdin);
    jpeg_read_header(&image, TRUE);
    image.out_color_space = JCS_RGB;
    image.dct_method = JDCT_ISLOW;
    image.do_block_smoothing = FALSE;
    if (count > 1) image.scale_num = 1, image.scale_denom = atoi(arguments[1]);
    jpeg_start_decompress(&image);
    JSAMPROW row = malloc(image.output_width * 3);
    while (image.output_scanline < image.output_height) {
        jpeg_read_scanlines(&image, &row, 1);
        fwrite(row, 3, image.output_width, stdout);
    }
    jpeg_finish_decompress(&image);
    return errors.num_warnings ? 3 : 0;
}
